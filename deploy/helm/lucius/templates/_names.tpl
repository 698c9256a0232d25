{{- define "lucius.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "lucius.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains (include "lucius.name" .) .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "lucius.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "lucius.serviceAccount" -}}
{{- default (include "lucius.fullname" .) .Values.serviceAccount.name }}
{{- end }}

{{/* Services run as somebody else than LUCIUS: they need no ledger and no secrets of it. */}}
{{- define "lucius.servicesAccount" -}}
{{- if .Values.serviceAccount.servicesName -}}
{{ .Values.serviceAccount.servicesName }}
{{- else if .Values.serviceAccount.create -}}
{{ include "lucius.fullname" . }}-services
{{- else -}}
{{ include "lucius.serviceAccount" . }}
{{- end }}
{{- end }}

{{/* A hook runs before the accounts of the release exist, so it has one of its own. */}}
{{- define "lucius.migrationAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ include "lucius.fullname" . }}-migration
{{- else -}}
{{ include "lucius.serviceAccount" . }}
{{- end }}
{{- end }}

{{- define "lucius.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}
{{- end }}

{{/* Labels of an object. Takes the root and the name of its part. */}}
{{- define "lucius.labels" -}}
{{ include "lucius.selector" . }}
app.kubernetes.io/name: {{ include "lucius.name" .root }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "lucius.selector" -}}
app: {{ include "lucius.fullname" .root }}-{{ .part }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "lucius.orchestratorUrl" -}}
{{- default (printf "http://%s-orchestrator:%v" (include "lucius.fullname" .) .Values.api.service.port) .Values.orchestratorUrl }}
{{- end }}

{{/* Who may reach a port; nobody named means every pod of the namespace. */}}
{{- define "lucius.from" -}}
{{- if . }}{{ toYaml . }}{{ else }}- podSelector: {}{{ end }}
{{- end }}
