{{/* What a component is, whatever the values say: ports, and the name in grpc.health.v1 that tells whether it serves. */}}
{{- define "kbmesh.facts" -}}
retriever: {port: 7400, metricsPort: 7500, healthPort: 7600, health: kbmesh.retriever.v1.RetrieverService}
chunker: {port: 7401, metricsPort: 7501, healthPort: 7601, health: kbmesh.chunker.v1.ChunkerService}
embedder: {port: 7402, metricsPort: 7502, healthPort: 7602, health: kbmesh.embedder.v1.EmbedderService}
reranker: {port: 7403, metricsPort: 7503, healthPort: 7603, health: kbmesh.reranker.v1.RerankerService}
edge: {port: 7404, metricsPort: 7504, healthPort: 7604, health: qdrant.Qdrant}
qdrant: {port: 6334}
postgres: {port: 5432}
redis: {port: 6379}
{{- end }}

{{/* Prefix of all names. One that is cut gets a hash, so that two releases with a long name in common do not meet. */}}
{{- define "kbmesh.fullname" -}}
{{- $name := .Values.fullnameOverride | default (contains "kbmesh" .Release.Name | ternary .Release.Name (printf "%s-kbmesh" .Release.Name)) -}}
{{- if gt (len $name) 40 -}}
{{- printf "%s-%s" (trunc 33 $name | trimSuffix "-") (sha256sum $name | trunc 6) -}}
{{- else -}}
{{- $name -}}
{{- end -}}
{{- end }}

{{/* Name of a component's objects. Takes {root, component}. */}}
{{- define "kbmesh.name" -}}
{{- printf "%s-%s" (include "kbmesh.fullname" .root) .component -}}
{{- end }}

{{/* Labels that select a component's pods. A Deployment's selector cannot be changed: these three stay for ever. */}}
{{- define "kbmesh.selectorLabels" -}}
{{ include "kbmesh.releaseLabels" .root }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Labels that select all pods of the release. */}}
{{- define "kbmesh.releaseLabels" -}}
app.kubernetes.io/name: kbmesh
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Labels of every object. Takes {root, component}. */}}
{{- define "kbmesh.labels" -}}
{{ include "kbmesh.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Start of an object's metadata. Takes {root, component}, and `suffix` where a component has several of a kind. */}}
{{- define "kbmesh.metadata" -}}
name: {{ include "kbmesh.name" . }}{{ with .suffix }}-{{ . }}{{ end }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "kbmesh.labels" . | nindent 2 }}
{{- end }}

{{- define "kbmesh.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "kbmesh.fullname" .) "default") -}}
{{- end }}

{{/* An image: {root, image: {repository, tag, digest}, repository: default}. A digest wins over a tag. */}}
{{- define "kbmesh.image" -}}
{{- $repository := .image.repository | default .repository -}}
{{- $registry := .root.Values.images.registry -}}
{{- if $registry }}{{ printf "%s/" (trimSuffix "/" $registry) }}{{ end }}{{ $repository -}}
{{- if .image.digest -}}
@{{ .image.digest }}
{{- else -}}
:{{ .image.tag | default .tag | default .root.Values.images.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "kbmesh.image.tools" -}}
{{- include "kbmesh.image" (dict "root" . "image" .Values.images.tools "repository" "kbmesh-cli") -}}
{{- end }}

{{/* Address of all replicas of a component, for gRPC's round robin. The short name costs one look-up, not several. */}}
{{- define "kbmesh.address" -}}
{{- $facts := include "kbmesh.facts" . | fromYaml -}}
dns:///{{ include "kbmesh.name" . }}-headless:{{ (index $facts .component).port }}
{{- end }}
