{{/* An HPA, a ScaledObject, or neither. Takes {root, component, values}. Embedder and reranker scale on the tokens that
     wait and run, which rise before latency does; the others on CPU. */}}
{{- define "kbmesh.scaling" -}}
{{- $scaling := .values.autoscaling -}}
{{- if gt (int $scaling.minReplicas) (int $scaling.maxReplicas) -}}
{{- fail (printf "%s.autoscaling: minReplicas %d is above maxReplicas %d" .component (int $scaling.minReplicas) (int $scaling.maxReplicas)) -}}
{{- end -}}
{{- $byTokens := has .component (list "embedder" "reranker") -}}
{{- $facts := index (include "kbmesh.facts" . | fromYaml) .component -}}
{{- if eq $scaling.by "hpa" -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  {{- include "kbmesh.metadata" . | nindent 2 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ include "kbmesh.name" . }}
  minReplicas: {{ $scaling.minReplicas }}
  maxReplicas: {{ $scaling.maxReplicas }}
  metrics:
    {{- if $byTokens }}
    - type: Pods
      pods:
        metric:
          name: {{ $scaling.hpaMetric }}
        target:
          type: AverageValue
          averageValue: {{ $scaling.targetTokens | toJson | quote }}
    {{- else }}
    - type: Resource
      resource:
        name: cpu
        target:
          type: Utilization
          averageUtilization: {{ $scaling.targetCpuPercent }}
    {{- end }}
  behavior:
    {{- include "kbmesh.scalingBehavior" . | nindent 4 }}
{{- else if eq $scaling.by "keda" -}}
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  {{- include "kbmesh.metadata" . | nindent 2 }}
spec:
  scaleTargetRef:
    name: {{ include "kbmesh.name" . }}
  pollingInterval: {{ $scaling.pollingIntervalSeconds }}
  minReplicaCount: {{ $scaling.minReplicas }}
  maxReplicaCount: {{ $scaling.maxReplicas }}
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        {{- include "kbmesh.scalingBehavior" . | nindent 8 }}
  triggers:
    {{- if $byTokens }}
    - type: external
      metadata:
        scalerAddress: {{ include "kbmesh.name" . }}.{{ .root.Release.Namespace }}.svc:{{ $facts.port }}
        targetTokens: {{ $scaling.targetTokens | toJson | quote }}
        {{- if .root.Values.tls.enabled }}
        enableTLS: "true"
      authenticationRef:
        name: {{ include "kbmesh.name" . }}
        {{- end }}
    {{- else }}
    - type: cpu
      metricType: Utilization
      metadata:
        value: {{ $scaling.targetCpuPercent | toJson | quote }}
    {{- end }}
{{- if and .root.Values.tls.enabled (include "kbmesh.kedaAsks" .) }}
{{- $secret := include "kbmesh.tlsSecret" (dict "root" .root "part" "keda") }}
---
apiVersion: keda.sh/v1alpha1
kind: TriggerAuthentication
metadata:
  {{- include "kbmesh.metadata" . | nindent 2 }}
spec:
  secretTargetRef:
    - {parameter: caCert, name: {{ $secret }}, key: ca.crt}
    - {parameter: tlsClientCert, name: {{ $secret }}, key: tls.crt}
    - {parameter: tlsClientKey, name: {{ $secret }}, key: tls.key}
{{- end }}
{{- end -}}
{{- end }}

{{- define "kbmesh.scalingBehavior" -}}
scaleUp:
  stabilizationWindowSeconds: 0
scaleDown:
  stabilizationWindowSeconds: {{ .values.autoscaling.scaleDownSeconds }}
  policies:
    - {type: Pods, value: 1, periodSeconds: 60}
{{- end }}
