{{/* What the chart itself knows of LUCIUS's settings, as YAML; settings in the values win. */}}
{{- define "lucius.knownSettings" -}}
LUCIUS_ORCHESTRATOR_URL: {{ include "lucius.orchestratorUrl" . }}
LUCIUS_DATA: /var/lib/lucius
{{- if .Values.registry.files }}
LUCIUS_REGISTRY: /etc/lucius/registry
{{- end }}
{{- if .Values.workloadIdentity }}
LUCIUS_AZURE_CREDENTIAL: workload
{{- end }}
{{- end }}

{{/* The environment of a container. Takes the root, `maps` of variables of which the last one wins, and `secretKeys`. */}}
{{- define "lucius.environment" -}}
{{- $variables := dict }}
{{- range .maps }}
{{- $variables = mergeOverwrite $variables (deepCopy .) }}
{{- end }}
{{- range $name, $value := $variables }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- range .secretKeys }}
- name: {{ . }}
  valueFrom:
    secretKeyRef:
      name: {{ required "secrets.existingSecret: name a Secret that has the keys of secrets.keys" $.root.Values.secrets.existingSecret }}
      key: {{ . }}
{{- end }}
{{- end }}

{{/* What every pod has: identity, security, placing. Takes the root, and `account` if it is not that of the roles.
Nobody calls Kubernetes, so nobody has its token; that of workload identity is another one. */}}
{{- define "lucius.podCommon" -}}
serviceAccountName: {{ default (include "lucius.serviceAccount" .root) .account }}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "lucius.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "lucius.podMeta" -}}
labels: {{- include "lucius.selector" . | nindent 2 }}
{{- if .root.Values.workloadIdentity }}
  azure.workload.identity/use: "true"
{{- end }}
{{- with .root.Values.podLabels }}
{{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.podAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "lucius.spread" -}}
{{- if .root.Values.topologySpreadConstraints }}
{{- toYaml .root.Values.topologySpreadConstraints }}
{{- else -}}
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "lucius.selector" . | nindent 6 }}
- maxSkew: 1
  topologyKey: topology.kubernetes.io/zone
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "lucius.selector" . | nindent 6 }}
{{- end }}
{{- end }}

{{/* Probes on a port that serves /healthz and /readyz. A part that is not ready is not restarted: restarting mends no
ledger. */}}
{{- define "lucius.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: {{ . }}}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: {{ . }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: {{ . }}}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{- define "lucius.volumeMounts" -}}
- name: data
  mountPath: /var/lib/lucius
- name: tmp
  mountPath: /tmp
{{- if .root.Values.registry.files }}
- name: registry
  mountPath: /etc/lucius/registry
  readOnly: true
{{- end }}
{{- end }}

{{- define "lucius.volumes" -}}
- name: tmp
  emptyDir: {sizeLimit: 1Gi}
{{- if .root.Values.registry.files }}
- name: registry
  configMap:
    name: {{ include "lucius.fullname" .root }}-registry
    items:
{{- range $path, $_ := .root.Values.registry.files }}
      - key: {{ $path | replace "/" "." }}
        path: {{ $path }}
{{- end }}
{{- end }}
{{- end }}
