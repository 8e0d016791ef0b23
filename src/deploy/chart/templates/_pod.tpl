{{- /* Rendered by "townhall deploy --render" */}}
{{- /* What the pods of the gateway and of the agent share. */}}
{{- define "pod.user" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
fsGroup: 1000
fsGroupChangePolicy: OnRootMismatch
{{- end -}}

{{- define "pod.container" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "pod.placement" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "pod.image" -}}
image: {{ printf "%s:%s" .Values.image.repository .Values.image.tag | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy | default "IfNotPresent" }}
{{- end -}}

{{- /* Takes the bucket and the prefix of its settings. */}}
{{- define "pod.bucket" -}}
{{- $prefix := .prefix }}
{{- with .bucket }}
- name: {{ $prefix }}STORAGE_S3_BUCKET
  value: {{ .name | quote }}
{{- with .endpoint }}
- name: {{ $prefix }}STORAGE_S3_ENDPOINT
  value: {{ . | quote }}
{{- end }}
{{- with .region }}
- name: {{ $prefix }}STORAGE_S3_REGION
  value: {{ . | quote }}
{{- end }}
{{- with .prefix }}
- name: {{ $prefix }}STORAGE_S3_PREFIX
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* Takes the size and the storageClass of the claim. */}}
{{- define "pod.claim" -}}
- metadata:
    name: data
  spec:
    accessModes: [ReadWriteOnce]
    {{- with .storageClass }}
    storageClassName: {{ . | quote }}
    {{- end }}
    resources:
      requests:
        storage: {{ .size }}
{{- end -}}
