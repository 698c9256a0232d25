{{/* What a service is scaled by: the directives that wait for it on the lanes. A broker's lanes are looked at one by one,
and KEDA takes the highest answer. */}}
{{- define "lucius.triggers" -}}
{{- $scaling := .service.scaling }}
{{- $backlog := default 10 $scaling.backlogPerReplica | toString }}
{{- $more := default dict $scaling.metadata }}
{{- $prefix := default "lucius" (get .root.Values.settings "LUCIUS_NATS_PREFIX") }}
{{- if eq $scaling.type "postgresql" }}
{{- $metadata := dict "targetQueryValue" $backlog "query" (printf "SELECT count(*) FROM messages JOIN subscriptions USING (subscription_id) WHERE name = '%s' AND topic LIKE 'global-bus-p%%' AND state = 'QUEUED'" .service.name) }}
{{- include "lucius.trigger" (dict "type" "postgresql" "metadata" (merge $more $metadata) "scaling" $scaling) }}
{{- else }}
{{- range $lane := until 16 }}
{{- if eq $scaling.type "azure-servicebus" }}
{{- $metadata := dict "topicName" (printf "global-bus-p%d" $lane) "subscriptionName" $.service.name "messageCount" $backlog }}
{{- include "lucius.trigger" (dict "type" "azure-servicebus" "metadata" (merge (deepCopy $more) $metadata) "scaling" $scaling) }}
{{- else }}
{{- $metadata := dict "account" "$G" "stream" (printf "%s-topic-global-bus-p%d" $prefix $lane) "consumer" $.service.name "lagThreshold" $backlog }}
{{- include "lucius.trigger" (dict "type" "nats-jetstream" "metadata" (merge (deepCopy $more) $metadata) "scaling" $scaling) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "lucius.trigger" }}
- type: {{ .type }}
  metadata: {{- range $name, $value := .metadata }}
    {{ $name }}: {{ $value | toString | quote }}
  {{- end }}
  {{- with .scaling.authenticationRef }}
  authenticationRef: {name: {{ . }}}
  {{- end }}
{{- end }}
