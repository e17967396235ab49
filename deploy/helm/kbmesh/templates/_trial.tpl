{{/* A store for trying kbmesh out: one pod, no replicas, no backups. Takes {root, component, values}, `ports`
     (name to number), and as YAML text `body` (the rest of the container), `mounts` and `volumes`. */}}
{{- define "kbmesh.trialStore" -}}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  {{- include "kbmesh.metadata" . | nindent 2 }}
spec:
  replicas: 1
  serviceName: {{ include "kbmesh.name" . }}
  selector:
    matchLabels:
      {{- include "kbmesh.selectorLabels" . | nindent 6 }}
  template:
    metadata:
      {{- include "kbmesh.podMetadata" . | nindent 6 }}
    spec:
      {{- include "kbmesh.pod" . | nindent 6 }}
      containers:
        - name: {{ .component }}
          image: {{ include "kbmesh.image" (dict "root" (dict "Values" (dict "images" (dict "registry" "" "tag" "")) "Chart" .root.Chart) "image" .values.image) | quote }}
          imagePullPolicy: {{ .root.Values.images.pullPolicy }}
          {{- .body | nindent 10 }}
          ports:
            {{- range $name, $port := .ports }}
            - {name: {{ $name }}, containerPort: {{ $port }}}
            {{- end }}
          {{- include "kbmesh.resources" . | nindent 10 }}
          {{- include "kbmesh.containerSecurity" . | nindent 10 }}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            - {name: data, mountPath: /data}
            {{- with .mounts }}
            {{- . | nindent 12 }}
            {{- end }}
      volumes:
        - name: tmp
          emptyDir: {}
        - name: data
          persistentVolumeClaim:
            claimName: {{ include "kbmesh.name" . }}
        {{- with .volumes }}
        {{- . | nindent 8 }}
        {{- end }}
---
{{ include "kbmesh.claim" (merge (dict "claim" .values.storage) .) }}
---
apiVersion: v1
kind: Service
metadata:
  {{- include "kbmesh.metadata" . | nindent 2 }}
spec:
  selector:
    {{- include "kbmesh.selectorLabels" . | nindent 4 }}
  ports:
    {{- range $name, $port := .ports }}
    - {name: {{ $name }}, port: {{ $port }}, targetPort: {{ $name }}}
    {{- end }}
{{- with include "kbmesh.networkPolicy" (dict "root" .root "component" .component "values" .values "from" (list "retriever")) }}
---
{{ . }}
{{- end }}
{{- end }}
