{{- define "treadle.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Labels of every object; call with (dict "top" $ "component" "operator"), component may be "". */ -}}
{{- define "treadle.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .top.Chart.Name .top.Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .top.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .top.Release.Service }}
app.kubernetes.io/part-of: treadle
{{ include "treadle.selector" . }}
{{- end -}}

{{- define "treadle.selector" -}}
app.kubernetes.io/name: {{ .top.Chart.Name }}
app.kubernetes.io/instance: {{ .top.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{- /* (dict "top" $ "image" .Values.images.operator) */ -}}
{{- define "treadle.image" -}}
{{- printf "%s:%s" .image.repository (.image.tag | default .top.Chart.AppVersion) -}}
{{- end -}}

{{- define "treadle.storeSecret" -}}
{{- .Values.postgres.existingSecret | default (printf "%s-store-access" (include "treadle.fullname" .)) -}}
{{- end -}}

{{- define "treadle.streamSecret" -}}
{{- if .Values.redis.existingSecret -}}
{{- .Values.redis.existingSecret -}}
{{- else if .Values.devStores.enabled -}}
{{- printf "%s-stream-access" (include "treadle.fullname" .) -}}
{{- end -}}
{{- end -}}
