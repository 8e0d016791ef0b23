{{- /* Rendered by "townhall deploy --render" */}}
{{- define "city.name" -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "city.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "city.labels" -}}
{{ include "city.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "city.secret" -}}
{{- .Values.existingSecret | default (include "city.name" .) -}}
{{- end -}}

{{- /* The agent has names of its own, so that the Service of the gateway does not select its pods. */}}
{{- define "agent.name" -}}
{{- printf "%s-agent" (include "city.name" . | trunc 46 | trimSuffix "-") -}}
{{- end -}}

{{- define "agent.selector" -}}
app.kubernetes.io/name: {{ printf "%s-agent" .Chart.Name | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "agent.labels" -}}
{{ include "agent.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "agent.secret" -}}
{{- .Values.agent.existingSecret | default (include "agent.name" .) -}}
{{- end -}}
