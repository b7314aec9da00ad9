{{- /*
Passwords of the development stores, as JSON: those that the release already has, else new ones. `lookup` finds
nothing where no cluster is asked (`helm template`, Argo CD): there every rendering makes new ones, so use
existing Secrets with such tools. Kept in .Values for the time of one rendering, since several objects need the same.
*/ -}}
{{- define "treadle.passwords" -}}
{{- if not (hasKey .Values "generatedPasswords") -}}
{{- $known := (lookup "v1" "Secret" .Release.Namespace (printf "%s-passwords" (include "treadle.fullname" .))).data | default dict -}}
{{- $passwords := dict -}}
{{- range $who := list "postgres" "operator" "gateway" "agent" "redis-operator" "redis-gateway" -}}
{{- $_ := set $passwords $who (hasKey $known $who | ternary (get $known $who | default "" | b64dec) (randAlphaNum 32)) -}}
{{- end -}}
{{- $_ := set .Values "generatedPasswords" $passwords -}}
{{- end -}}
{{- .Values.generatedPasswords | toJson -}}
{{- end -}}

{{- /* (dict "top" $ "user" .. "password" ..) */ -}}
{{- define "treadle.postgresUrl" -}}
postgresql://{{ .user }}:{{ .password }}@{{ include "treadle.fullname" .top }}-postgres.{{ .top.Release.Namespace }}.svc:5432/treadle
{{- end -}}

{{- define "treadle.redisAddress" -}}
{{ include "treadle.fullname" . }}-redis.{{ .Release.Namespace }}.svc:6379/0
{{- end -}}

{{- /* What agents are given: the release's own Secret, or the one that the user made. Empty where it cannot be read. */ -}}
{{- define "treadle.agentDsn" -}}
{{- if .Values.devStores.enabled -}}
{{- $passwords := include "treadle.passwords" . | fromJson -}}
{{- include "treadle.postgresUrl" (dict "top" . "user" "treadle_agent_user" "password" $passwords.agent) -}}
{{- else -}}
{{- $data := (lookup "v1" "Secret" .Release.Namespace .Values.postgres.existingSecret).data | default dict -}}
{{- get $data "agent-dsn" | default "" | b64dec -}}
{{- end -}}
{{- end -}}

{{- define "treadle.agentStreamUrl" -}}
{{- if .Values.redis.existingSecret -}}
{{- $data := (lookup "v1" "Secret" .Release.Namespace .Values.redis.existingSecret).data | default dict -}}
{{- get $data "agent-url" | default "" | b64dec -}}
{{- else if .Values.devStores.enabled -}}
redis://{{ include "treadle.redisAddress" . }}
{{- end -}}
{{- end -}}
