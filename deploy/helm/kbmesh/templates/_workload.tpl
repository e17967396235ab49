{{/* How a new version takes over. Takes {root, component, values}. With devices there may be none to spare, and two
     processes must not share a SQLite file. */}}
{{- define "kbmesh.strategy" -}}
{{- if .values.strategy -}}
{{ toYaml .values.strategy }}
{{- else if and (eq .component "retriever") (eq .root.Values.catalog.kind "sqlite") -}}
type: Recreate
{{- else if and .values.gpu (gt (int .values.gpu.count) 0) -}}
type: RollingUpdate
rollingUpdate:
  maxSurge: 0
  maxUnavailable: 1
{{- else -}}
type: RollingUpdate
rollingUpdate:
  maxSurge: 1
  maxUnavailable: 0
{{- end -}}
{{- end }}

{{/* The container of a server. Takes {root, component, values, image}, and as YAML text `environment` and `mounts`. */}}
{{- define "kbmesh.serverContainer" -}}
{{- $facts := index (include "kbmesh.facts" . | fromYaml) .component -}}
- name: {{ .component }}
  image: {{ .image | quote }}
  imagePullPolicy: {{ .root.Values.images.pullPolicy }}
  env:
    {{- include "kbmesh.serverEnvironment" . | nindent 4 }}
    {{- with .environment }}
    {{- . | nindent 4 }}
    {{- end }}
  ports:
    - {name: grpc, containerPort: {{ $facts.port }}}
    - {name: metrics, containerPort: {{ $facts.metricsPort }}}
    {{- if .root.Values.tls.enabled }}
    - {name: health, containerPort: {{ $facts.healthPort }}}
    {{- end }}
  {{- include "kbmesh.probes" . | nindent 2 }}
  {{- if gt (int (ceil .values.drain.preStopSeconds)) 0 }}
  lifecycle:
    preStop:
      sleep:
        seconds: {{ ceil .values.drain.preStopSeconds }}
  {{- end }}
  {{- include "kbmesh.resources" . | nindent 2 }}
  {{- include "kbmesh.containerSecurity" . | nindent 2 }}
  volumeMounts:
    - {name: tmp, mountPath: /tmp}
    {{- if .root.Values.tls.enabled }}
    {{- include "kbmesh.tlsMount" . | nindent 4 }}
    {{- end }}
    {{- with .mounts }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with .values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* The pod of a server. Takes what serverContainer takes, and as YAML text `volumes` and `initContainers`. */}}
{{- define "kbmesh.serverPod" -}}
metadata:
  {{- include "kbmesh.podMetadata" . | nindent 2 }}
spec:
  {{- include "kbmesh.pod" . | nindent 2 }}
  {{- with include "kbmesh.topologySpread" . }}
  {{- . | nindent 2 }}
  {{- end }}
  terminationGracePeriodSeconds: {{ include "kbmesh.terminationGracePeriodSeconds" . }}
  {{- with .initContainers }}
  initContainers:
    {{- . | nindent 4 }}
  {{- end }}
  containers:
    {{- include "kbmesh.serverContainer" . | nindent 4 }}
  volumes:
    - name: tmp
      emptyDir:
        sizeLimit: {{ .values.tmpSize }}
    {{- if .root.Values.tls.enabled }}
    {{- include "kbmesh.tlsVolume" (dict "root" .root "part" .component) | nindent 4 }}
    {{- end }}
    {{- with .volumes }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with .values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* The Deployment of a server. Takes what serverPod takes. */}}
{{- define "kbmesh.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "kbmesh.metadata" . | nindent 2 }}
spec:
  {{- if eq .values.autoscaling.by "none" }}
  replicas: {{ .values.replicas }}
  {{- end }}
  revisionHistoryLimit: 5
  strategy:
    {{- include "kbmesh.strategy" . | nindent 4 }}
  selector:
    matchLabels:
      {{- include "kbmesh.selectorLabels" . | nindent 6 }}
  template:
    {{- include "kbmesh.serverPod" . | nindent 4 }}
{{- end }}

{{/* Two Services: one with an address of its own, for KEDA, gateways and port-forward, and a headless one with all
     replicas' addresses, for round robin, for the scaler's sum and for Prometheus. Takes {root, component, values}. */}}
{{- define "kbmesh.services" -}}
{{- $facts := index (include "kbmesh.facts" . | fromYaml) .component -}}
{{- $protocol := .root.Values.tls.enabled | ternary "https" "kubernetes.io/h2c" -}}
apiVersion: v1
kind: Service
metadata:
  {{- include "kbmesh.metadata" . | nindent 2 }}
  {{- with .values.service.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  type: {{ .values.service.type }}
  selector:
    {{- include "kbmesh.selectorLabels" . | nindent 4 }}
  ports:
    - {name: grpc, port: {{ $facts.port }}, targetPort: grpc, appProtocol: {{ $protocol }}}
---
apiVersion: v1
kind: Service
metadata:
  {{- include "kbmesh.metadata" (merge (dict "suffix" "headless") .) | nindent 2 }}
    kbmesh-service: headless
spec:
  clusterIP: None
  selector:
    {{- include "kbmesh.selectorLabels" . | nindent 4 }}
  ports:
    - {name: grpc, port: {{ $facts.port }}, targetPort: grpc, appProtocol: {{ $protocol }}}
    - {name: metrics, port: {{ $facts.metricsPort }}, targetPort: metrics}
{{- end }}

{{/* Lets a node be drained whatever the number of replicas: one at a time. Takes {root, component, values}. */}}
{{- define "kbmesh.podDisruptionBudget" -}}
{{- if .values.podDisruptionBudget.enabled -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "kbmesh.metadata" . | nindent 2 }}
spec:
  maxUnavailable: {{ .values.podDisruptionBudget.maxUnavailable }}
  # A pod that is not ready serves nobody, and must not hold up a node's drain.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "kbmesh.selectorLabels" . | nindent 6 }}
{{- end -}}
{{- end }}

{{/* Takes {root, component}. Prometheus finds each replica once, by the headless Service. */}}
{{- define "kbmesh.serviceMonitor" -}}
{{- if .root.Values.serviceMonitor.enabled -}}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  {{- include "kbmesh.metadata" . | nindent 2 }}
    {{- with .root.Values.serviceMonitor.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  jobLabel: app.kubernetes.io/component
  selector:
    matchLabels:
      {{- include "kbmesh.selectorLabels" . | nindent 6 }}
      kbmesh-service: headless
  endpoints:
    - port: metrics
      interval: {{ .root.Values.serviceMonitor.interval }}
{{- end -}}
{{- end }}
