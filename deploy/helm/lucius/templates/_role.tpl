{{/* A role of LUCIUS as a Deployment. Takes the root, the part's name, the container's name, the command's words and the
values of the role. */}}
{{- define "lucius.role" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "lucius.fullname" .root }}-{{ .part }}
  labels: {{- include "lucius.labels" . | nindent 4 }}
spec:
{{- if not (dig "autoscaling" "enabled" false .values) }}
  replicas: {{ .values.replicas }}
{{- end }}
  strategy:
    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
  selector:
    matchLabels: {{- include "lucius.selector" . | nindent 6 }}
  template:
    metadata: {{- include "lucius.podMeta" . | nindent 6 }}
    spec:
      {{- include "lucius.podCommon" . | nindent 6 }}
      terminationGracePeriodSeconds: {{ include "lucius.grace" . }}
      topologySpreadConstraints: {{- include "lucius.spread" . | nindent 8 }}
      containers:
        - name: {{ .container }}
          image: {{ include "lucius.image" .root }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args: {{ .args | toJson }}
          env:
            {{- $fixed := merge (dict "LUCIUS_MANAGEMENT_HOST" "0.0.0.0" "LUCIUS_MANAGEMENT_PORT" "8001") (.fixed | default dict) }}
            {{- $maps := list (include "lucius.knownSettings" .root | fromYaml) .root.Values.settings .values.settings $fixed }}
            {{- include "lucius.environment" (dict "root" .root "maps" $maps "secretKeys" .root.Values.secrets.keys) | trim | nindent 12 }}
          ports:
            {{- range .ports }}
            - {name: {{ .name }}, containerPort: {{ .port }}}
            {{- end }}
            - {name: management, containerPort: 8001}
          {{- include "lucius.probes" "management" | nindent 10 }}
          {{- if .ports }}
          lifecycle:
            # Endpoints take a moment to learn that this pod leaves.
            preStop: {exec: {command: [sleep, "5"]}}
          {{- end }}
          resources: {{- toYaml .values.resources | nindent 12 }}
          securityContext: {{- include "lucius.containerSecurity" . | nindent 12 }}
          volumeMounts: {{- include "lucius.volumeMounts" . | nindent 12 }}
      volumes:
        - name: data
          emptyDir: {sizeLimit: 1Gi}
        {{- include "lucius.volumes" . | nindent 8 }}
{{- end }}

{{/* At least as long as LUCIUS takes to stop: 5 s until endpoints know, 2 s until clients have left, 10 s for calls, then
LUCIUS_STOP_SECONDS for the rest. */}}
{{- define "lucius.grace" -}}
{{- $settings := mergeOverwrite (dict "LUCIUS_STOP_SECONDS" 10) (deepCopy .root.Values.settings) (deepCopy .values.settings) }}
{{- max (int .values.terminationGracePeriodSeconds) (add 20 (get $settings "LUCIUS_STOP_SECONDS" | float64 | ceil | int)) }}
{{- end }}

{{- define "lucius.autoscaler" -}}
{{- if .values.autoscaling.enabled -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ include "lucius.fullname" .root }}-{{ .part }}
  labels: {{- include "lucius.labels" . | nindent 4 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ include "lucius.fullname" .root }}-{{ .part }}
  minReplicas: {{ .values.autoscaling.minReplicas }}
  maxReplicas: {{ .values.autoscaling.maxReplicas }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target: {type: Utilization, averageUtilization: {{ .values.autoscaling.targetCPUUtilizationPercentage }}}
{{- end }}
{{- end }}

{{- define "lucius.disruptionBudget" -}}
{{- if .values.disruptionBudget.enabled -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "lucius.fullname" .root }}-{{ .part }}
  labels: {{- include "lucius.labels" . | nindent 4 }}
spec:
  minAvailable: {{ .values.disruptionBudget.minAvailable }}
  selector:
    matchLabels: {{- include "lucius.selector" . | nindent 6 }}
{{- end }}
{{- end }}
