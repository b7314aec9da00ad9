{{- /* What the schema of the values cannot say; included once, by the operator's Deployment. */ -}}
{{- define "treadle.checks" -}}
{{- if and .Values.devStores.enabled .Values.postgres.existingSecret -}}
{{- fail "set one of devStores.enabled and postgres.existingSecret, not both" -}}
{{- end -}}
{{- if not (or .Values.devStores.enabled .Values.postgres.existingSecret) -}}
{{- fail "Treadle needs a Postgres: set postgres.existingSecret to a Secret with its DSNs (see the chart's README.md), or devStores.enabled=true for a trial" -}}
{{- end -}}
{{- range .Values.agentNamespaces -}}
{{- if and $.Values.watchNamespaces (not (has . $.Values.watchNamespaces)) -}}
{{- fail (printf "agentNamespaces has %q, which watchNamespaces leaves out: the operator would never look there" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
