{{/* A peer: the pods of one component of this release. Takes {root, component}. */}}
{{- define "kbmesh.peer" -}}
- podSelector:
    matchLabels:
      {{- include "kbmesh.selectorLabels" . | nindent 6 }}
{{- end }}

{{- define "kbmesh.dnsEgress" -}}
{{- with .root.Values.networkPolicy.dns }}
- {{ if .to }}to:
    {{- toYaml .to | nindent 4 }}
  {{ end }}ports:
    {{- range .ports }}
    - {protocol: UDP, port: {{ . }}}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end }}
{{- end }}

{{/* The port of a URL: stated, or that of its scheme. */}}
{{- define "kbmesh.portOf" -}}
{{- $url := urlParse . -}}
{{- $stated := regexFind ":[0-9]+$" $url.host | trimPrefix ":" -}}
{{- $stated | default (eq $url.scheme "https" | ternary "443" "80") -}}
{{- end }}

{{/* Egress to something that is not a pod of this release: {to: peers or none, port}. */}}
{{- define "kbmesh.outsideEgress" -}}
- {{ with .to }}to:
    {{- toYaml . | nindent 4 }}
  {{ end }}ports:
    - {protocol: TCP, port: {{ .port }}}
{{- end }}

{{/* A component's NetworkPolicy. Takes {root, component, values}, `from` and `to` (components at the other end of its
     edges), and as YAML text `ingress` and `egress` (further rules). */}}
{{- define "kbmesh.networkPolicy" -}}
{{- if .root.Values.networkPolicy.enabled -}}
{{- $root := .root -}}
{{- $all := include "kbmesh.facts" . | fromYaml -}}
{{- $facts := index $all .component | default dict -}}
{{- $otlp := (merge (dict) (.values.settings | default dict) $root.Values.settings).otlp_endpoint -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "kbmesh.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "kbmesh.selectorLabels" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  {{- if or .from .ingress $facts.metricsPort }}
  ingress:
    {{- with .from }}
    - from:
        {{- range . }}
        {{- include "kbmesh.peer" (dict "root" $root "component" .) | nindent 8 }}
        {{- end }}
      ports:
        - {protocol: TCP, port: {{ $facts.port }}}
    {{- end }}
    {{- with .ingress }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- if and $facts.metricsPort $root.Values.networkPolicy.prometheus }}
    - from:
        {{- toYaml $root.Values.networkPolicy.prometheus | nindent 8 }}
      ports:
        - {protocol: TCP, port: {{ $facts.metricsPort }}}
    {{- end }}
  {{- end }}
  egress:
    {{- include "kbmesh.dnsEgress" . | nindent 4 }}
    {{- range .to }}
    - to:
        {{- include "kbmesh.peer" (dict "root" $root "component" .) | nindent 8 }}
      ports:
        - {protocol: TCP, port: {{ (index $all .).port }}}
    {{- end }}
    {{- with .egress }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with $otlp }}
    {{- include "kbmesh.outsideEgress" (dict "to" $root.Values.networkPolicy.otlp "port" (include "kbmesh.portOf" .)) | nindent 4 }}
    {{- end }}
    {{- with .values.extraEgress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
{{- end }}

{{/* Ingress of KEDA's operator to a component that answers it. Takes {root, component, values}. */}}
{{- define "kbmesh.kedaIngress" -}}
{{- $facts := index (include "kbmesh.facts" . | fromYaml) .component -}}
{{- if and (eq .values.autoscaling.by "keda") .root.Values.networkPolicy.keda -}}
- from:
    {{- toYaml .root.Values.networkPolicy.keda | nindent 4 }}
  ports:
    - {protocol: TCP, port: {{ $facts.port }}}
{{- end -}}
{{- end }}
