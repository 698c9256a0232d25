// Parses PromQL with Prometheus's own grammar: node parse_promql.cjs FOLDER EXPRESSIONS
const path = require("path");
const [folder, expressions] = process.argv.slice(2);
const { parser } = require(path.join(folder, "node_modules", "@prometheus-io", "lezer-promql"));
let failed = false;
for (const expression of JSON.parse(expressions)) {
  parser.parse(expression).iterate({
    enter(node) {
      if (!node.type.isError) return;
      console.error(`at ${node.from}: ${expression}`);
      failed = true;
    },
  });
}
process.exit(failed ? 1 : 0);
