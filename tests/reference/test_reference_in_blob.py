"""The sample pipeline with its input, workspace and output in Azure Blob."""

from __future__ import annotations

import json
import random
from pathlib import Path

from tests.azurite import KEY, Azurite
from tests.crash.client import Client
from tests.crash.processes import Process, free_port

from lucius.azure.blob import BlobAccount
from lucius.platform.file_roots import SAMPLES

COMMAND = json.loads((SAMPLES / "ocr_embedding_sis.json").read_bytes())


async def test_the_sample_job_runs_in_blob_from_end_to_end(azurite: Azurite, tmp_path: Path) -> None:
    settings = {
        "LUCIUS_STORAGE_CONNECTION": azurite.connection,
        "LUCIUS_WORKSPACE_ROOT": "blob://pipeline-work/lucius",
        "LUCIUS_PLATFORM_BLOB_ROOTS": "blob://pipeline-documents",
    }
    documents = "blob://pipeline-documents/demo"
    command = {**COMMAND, "input_ref": f"{documents}/contract.pdf", "output_ref": f"{documents}/answer.json"}
    words = ("up", "--data", str(tmp_path / "data"))
    async with BlobAccount.connected(azurite.connection) as account:
        for container in ("pipeline-work", "pipeline-documents"):
            await account.create_container(container)
        await account.write("pipeline-documents", "demo/contract.pdf", SAMPLES / "contract.pdf")
        with Process(*words, settings=settings, folder=tmp_path, port=free_port()) as server:
            async with Client([server.port or 0], random.Random(1)) as client:
                refused = {**command, "output_ref": "blob://pipeline-documents/globex/answer.json"}
                answer = await client.once("POST", "/v1/commands", refused)
                assert answer.status == 403, answer.body
                assert answer.body["code"] == "REF_FORBIDDEN"
                assert f"{documents}/" in answer.body["errors"][0]["detail"]
                accepted = await client.once("POST", "/v1/commands", command)
                job_id = accepted.body["jobId"]
                job = await client.read(f"/v1/jobs/{job_id}?wait_seconds=60")
        assert job["status"] == "SUCCEEDED", job
        result = json.loads((await account.read("pipeline-documents", "demo/answer.json", 99_999)).content)
        assert len(result["answers"]) == 3
        assert "ninety days" in result["answers"][0]["answer"]
        folder = f"lucius/demo/{job_id}"
        assert await account.names("pipeline-work", folder, 10) == [
            f"{folder}/EMBEDDING/1/embedding/vectors.json",
            f"{folder}/OCR/1/ocr/output.txt",
            f"{folder}/SIS/1/sis/result.json",
        ]
    assert not (tmp_path / "data" / "workspace").exists()
    assert KEY not in server.log
