"""Writes the sample contract as a PDF, with the standard library alone.

The file is kept in the repository; run this again only to change its text:

    python examples/make_sample_pdf.py src/lucius/reference/samples/contract.pdf
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

LINE_HEIGHT = 15
TOP = 780
LEFT = 72

PAGES = [
    """\
HARBOUR LANTERN WORKS LTD.
Service Agreement No. HL-2047

This agreement is made on 3 March 2025 between Harbour Lantern Works Ltd.,
17 Quay Street, Port Ellery (the Supplier), and the Ferry Company of
North Ellery (the Customer).

1. Services
The Supplier maintains the forty-two navigation lanterns on the Customer's
piers. Each lantern is inspected once a month and cleaned twice a year.

2. Response times
The Supplier repairs a failed lantern within six hours of the Customer's
call. For every further hour of darkness the Customer may deduct 85 euros
from the next invoice.

3. Term and notice
The agreement runs for three years from 1 April 2025. Either party may end
it with a notice period of ninety days, in writing. If nobody gives notice,
the agreement is renewed for one more year.
""",
    """\
4. Fees and payment
The yearly fee is 18,400 euros without tax, paid in four equal parts.
Invoices are due within thirty days of receipt. Late payments bear interest
of five percent a year.

5. Spare parts
Lamps and lenses are included in the fee. Batteries are invoiced at cost,
and the Customer approves any order above 500 euros beforehand.

6. Liability
The Supplier's liability is limited to 250,000 euros for each incident.
This limit does not apply to intent or gross negligence.

7. Contacts
Emergency calls are answered day and night by Ottilie Brandt, duty
engineer, on extension 204.

Invoice HL-2047-01
Period: April to June 2025
Total amount: 4,600 euros
Payable by: 15 July 2025
""",
]


def page_stream(text: str) -> bytes:
    """The drawing commands of one page: Helvetica, a line under a line."""
    shown = []
    for line in text.splitlines():
        escaped = line.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
        shown.append(f"({escaped}) Tj T*")
    body = "\n".join(shown)
    return f"BT /F1 11 Tf {LINE_HEIGHT} TL {LEFT} {TOP} Td\n{body}\nET".encode("latin-1")


def pdf(pages: list[str]) -> bytes:
    """A PDF 1.4 file: catalog, page tree, font, then a page and its stream for every text."""
    kids = " ".join(f"{4 + 2 * index} 0 R" for index in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for index, text in enumerate(pages):
        packed = zlib.compress(page_stream(text), 9)
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] "
            b"/Resources << /Font << /F1 3 0 R >> >> /Contents %d 0 R >>" % (5 + 2 * index)
        )
        objects.append(b"<< /Length %d /Filter /FlateDecode >>\nstream\n" % len(packed) + packed + b"\nendstream")
    return _assembled(objects)


def _assembled(objects: list[bytes]) -> bytes:
    out = bytearray(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n")
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n" % number + body + b"\nendobj\n"
    table_at = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    for offset in offsets:
        out += b"%010d 00000 n \n" % offset
    out += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table_at)
    return bytes(out)


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit("usage: make_sample_pdf.py FILE")
    Path(sys.argv[1]).write_bytes(pdf(PAGES))


if __name__ == "__main__":
    main()
