{{/* What all pods have in common. Takes {root, component, values}; the values' keys of placement may be absent. */}}
{{- define "kbmesh.pod" -}}
{{- $pods := .root.Values.pods -}}
serviceAccountName: {{ include "kbmesh.serviceAccountName" .root }}
automountServiceAccountToken: false
# Service links would set KBMESH_PORT and the like, which the services read as their settings.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .values.runAsUser | default $pods.runAsUser }}
  runAsGroup: {{ .values.runAsUser | default $pods.runAsGroup }}
  fsGroup: {{ .values.runAsUser | default $pods.fsGroup }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with .root.Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .values.priorityClassName | default (include "kbmesh.priorityClassName" .) }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The chart's own priority class of a component, where it makes them. */}}
{{- define "kbmesh.priorityClassName" -}}
{{- if .root.Values.priorityClasses.create -}}
{{- include "kbmesh.fullname" .root }}-{{ has .component (list "ingest" "models" "test") | ternary "bulk" "serving" -}}
{{- end -}}
{{- end }}

{{/* Keeps replicas of one version apart. Takes {root, component}. */}}
{{- define "kbmesh.topologySpread" -}}
{{- if ne .root.Values.pods.topologySpread "none" -}}
topologySpreadConstraints:
  {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: {{ eq $.root.Values.pods.topologySpread "hard" | ternary "DoNotSchedule" "ScheduleAnyway" }}
    labelSelector:
      matchLabels:
        {{- include "kbmesh.selectorLabels" $ | nindent 8 }}
    matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- end -}}
{{- end }}

{{- define "kbmesh.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  capabilities:
    drop: [ALL]
{{- end }}

{{/* Labels and annotations of a pod template. Takes {root, component, values}. Labels of the chart's version are left
     out: a new version of the chart alone restarts nothing. */}}
{{- define "kbmesh.podMetadata" -}}
labels:
  {{- with merge (dict) (.values.podLabels | default dict) .root.Values.pods.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- include "kbmesh.selectorLabels" . | nindent 2 }}
{{- with merge (dict) (.values.podAnnotations | default dict) .root.Values.pods.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* limits and requests; the device stands in the limits alone, where Kubernetes copies it from. */}}
{{- define "kbmesh.resources" -}}
{{- $limits := deepCopy .values.resources.limits -}}
{{- if and .values.gpu (gt (int .values.gpu.count) 0) -}}
{{- $_ := set $limits .values.gpu.resourceName (toString (int .values.gpu.count)) -}}
{{- end -}}
resources:
  limits:
    {{- toYaml $limits | nindent 4 }}
  {{- with .values.resources.requests }}
  requests:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{/* Probes by gRPC's health. Startup and liveness ask for the name `liveness`, which is there as soon as the process
     listens and falls when only a new process helps: a model that cannot be loaded yet is no reason for one. */}}
{{- define "kbmesh.probes" -}}
{{- $facts := index (include "kbmesh.facts" . | fromYaml) .component -}}
{{- /* The kubelet speaks no TLS. */}}
{{- $port := .root.Values.tls.enabled | ternary $facts.healthPort $facts.port -}}
startupProbe:
  grpc:
    port: {{ $port }}
    service: liveness
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: {{ div (int .values.probes.startupSeconds) 2 }}
readinessProbe:
  grpc:
    port: {{ $port }}
    service: {{ $facts.health }}
  periodSeconds: {{ .values.probes.readinessPeriodSeconds }}
  timeoutSeconds: 3
  failureThreshold: 2
livenessProbe:
  grpc:
    port: {{ $port }}
    service: liveness
  periodSeconds: {{ .values.probes.livenessPeriodSeconds }}
  timeoutSeconds: 5
  failureThreshold: {{ .values.probes.livenessFailures }}
{{- end }}

{{/* preStop, drain and a margin for closing stores and writing traces. */}}
{{- define "kbmesh.terminationGracePeriodSeconds" -}}
{{- add (ceil .values.drain.preStopSeconds) (ceil .values.drain.graceSeconds) 10 -}}
{{- end }}
