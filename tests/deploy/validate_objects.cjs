// Validates objects of KEDA and of the Prometheus operator: node validate_objects.cjs FOLDER OBJECTS
const path = require("path");
const [folder, objects] = process.argv.slice(2);
const packages = { "keda.sh/v1alpha1": "keda", "monitoring.coreos.com/v1": "prometheus-operator" };
for (const one of JSON.parse(objects)) {
  const name = path.join(folder, "node_modules", "@kubernetes-models", packages[one.apiVersion], one.apiVersion);
  const { [one.kind]: Kind } = require(name);
  try {
    new Kind(one).validate();
  } catch (error) {
    console.error(`${one.kind} ${one.metadata.name}: ${error.message}`);
    process.exit(1);
  }
}
