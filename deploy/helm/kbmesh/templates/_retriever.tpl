{{/* URL of the vector store. */}}
{{- define "kbmesh.qdrantUrl" -}}
{{- $facts := include "kbmesh.facts" . | fromYaml -}}
{{- $kind := .Values.vectorStore.kind -}}
{{- if eq $kind "external" -}}
{{ .Values.vectorStore.url }}
{{- else -}}
{{- $component := eq $kind "edge" | ternary "edge" "qdrant" -}}
{{ and .Values.tls.enabled (eq $kind "edge") | ternary "https" "http" }}://{{ include "kbmesh.name" (dict "root" . "component" $component) }}:{{ (index $facts $component).port }}
{{- end -}}
{{- end }}

{{/* Files by which Qdrant is trusted, and by which it trusts the retriever. */}}
{{- define "kbmesh.qdrantFiles" -}}
{{- $of := .Values.vectorStore -}}
{{- if or (and .Values.tls.enabled (eq $of.kind "edge")) (and (eq $of.kind "external") $of.tls.existingSecret) -}}
{{- $folder := eq $of.kind "edge" | ternary "/tls" "/qdrant-tls" -}}
- name: KBMESH_QDRANT_CA
  value: {{ $folder }}/ca.crt
{{- if or (eq $of.kind "edge") $of.tls.showCertificate }}
- name: KBMESH_QDRANT_CERT
  value: {{ $folder }}/tls.crt
- name: KBMESH_QDRANT_KEY
  value: {{ $folder }}/tls.key
{{- end }}
{{- end -}}
{{- end }}

{{- define "kbmesh.catalogSecret" -}}
{{- eq .Values.catalog.kind "external" | ternary .Values.catalog.existingSecret (include "kbmesh.name" (dict "root" . "component" "postgres")) -}}
{{- end }}

{{- define "kbmesh.retrieverEnvironment" -}}
{{- range list "chunker" "embedder" }}
- name: KBMESH_{{ upper . }}_ADDRESS
  value: {{ include "kbmesh.address" (dict "root" $ "component" .) }}
{{- end }}
- name: KBMESH_RERANKER_ADDRESS
  value: {{ .Values.reranker.enabled | ternary (include "kbmesh.address" (dict "root" . "component" "reranker")) "" | quote }}
- name: KBMESH_QDRANT_URL
  value: {{ include "kbmesh.qdrantUrl" . }}
{{- if and (eq .Values.vectorStore.kind "external") .Values.vectorStore.existingSecret }}
- name: KBMESH_QDRANT_API_KEY
  valueFrom:
    secretKeyRef:
      name: {{ .Values.vectorStore.existingSecret }}
      key: {{ .Values.vectorStore.secretKey }}
{{- end }}
{{- with include "kbmesh.qdrantFiles" . }}
{{ . }}
{{- end }}
- name: KBMESH_CACHE
  value: {{ .Values.cache.kind | default "off" | quote }}
{{- if eq (toString .Values.cache.kind) "redis" }}
- name: KBMESH_REDIS_URL
  valueFrom:
    secretKeyRef:
      name: {{ .Values.cache.existingSecret }}
      key: {{ .Values.cache.secretKey }}
{{- end }}
- name: KBMESH_CATALOG_URL
  {{- if eq .Values.catalog.kind "sqlite" }}
  value: sqlite:////data/catalog.db
  {{- else }}
  valueFrom:
    secretKeyRef:
      name: {{ include "kbmesh.catalogSecret" . }}
      key: {{ eq .Values.catalog.kind "external" | ternary .Values.catalog.secretKey "url" }}
  {{- end }}
{{- end }}

{{- define "kbmesh.retrieverEgress" -}}
{{- if eq .Values.vectorStore.kind "external" }}
{{- include "kbmesh.outsideEgress" (dict "to" .Values.networkPolicy.qdrant "port" (include "kbmesh.portOf" .Values.vectorStore.url)) }}
{{- end }}
{{- if eq .Values.catalog.kind "external" }}
{{ include "kbmesh.outsideEgress" (dict "to" .Values.networkPolicy.postgres "port" .Values.catalog.port) }}
{{- end }}
{{- if eq (toString .Values.cache.kind) "redis" }}
{{ include "kbmesh.outsideEgress" (dict "to" .Values.networkPolicy.redis "port" .Values.cache.port) }}
{{- end }}
{{- end }}

{{- define "kbmesh.retrieverIngress" -}}
{{- with .Values.networkPolicy.callers -}}
- from:
    {{- toYaml . | nindent 4 }}
  ports:
    - {protocol: TCP, port: 7400}
{{- end -}}
{{- end }}
