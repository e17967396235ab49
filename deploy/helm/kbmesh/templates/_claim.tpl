{{/* A claim that stays when the release goes. Takes {root, component, suffix?, claim: {size, storageClassName, accessModes?}}. */}}
{{- define "kbmesh.claim" -}}
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  {{- include "kbmesh.metadata" . | nindent 2 }}
  annotations:
    helm.sh/resource-policy: keep
spec:
  accessModes: {{ .claim.accessModes | default (list "ReadWriteOnce") | toJson }}
  {{- with .claim.storageClassName }}
  storageClassName: {{ . | quote }}
  {{- end }}
  resources:
    requests:
      storage: {{ .claim.size }}
{{- end }}
