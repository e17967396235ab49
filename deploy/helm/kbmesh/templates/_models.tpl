{{- define "kbmesh.modelsFolder" -}}
/models{{ with .Values.models.folder }}/{{ . }}{{ end }}
{{- end }}

{{/* Containers that put models into the volume `models`. Takes {root, names: list}. What is there already is left. */}}
{{- define "kbmesh.modelContainers" -}}
{{- $models := .root.Values.models -}}
{{- range $index, $name := .names }}
- name: pull-{{ $index }}
  image: {{ include "kbmesh.image.tools" $.root | quote }}
  imagePullPolicy: {{ $.root.Values.images.pullPolicy }}
  args: [models, pull, {{ $name | quote }}]
  env:
    {{- include "kbmesh.commandEnvironment" (dict "root" $.root "values" $models.pull) | nindent 4 }}
    - name: KBMESH_MODELS
      value: {{ include "kbmesh.modelsFolder" $.root }}
    - name: HF_HOME
      value: /cache/huggingface
  {{- include "kbmesh.resources" (dict "values" $models.pull) | nindent 2 }}
  {{- include "kbmesh.containerSecurity" $ | nindent 2 }}
  volumeMounts:
    - {name: tmp, mountPath: /tmp}
    - {name: cache, mountPath: /cache}
    - {name: models, mountPath: /models}
{{- end }}
{{- end }}

{{/* Where the models of a server come from. Takes {root, values}. */}}
{{- define "kbmesh.modelVolume" -}}
{{- $models := .root.Values.models -}}
- name: models
  {{- if eq $models.source "image" }}
  image:
    reference: {{ $models.image.reference }}
    pullPolicy: {{ $models.image.pullPolicy }}
  {{- else if eq $models.source "claim" }}
  persistentVolumeClaim:
    claimName: {{ include "kbmesh.modelsClaim" .root }}
    readOnly: true
  {{- else }}
  emptyDir:
    sizeLimit: {{ $models.pull.size }}
  {{- end }}
{{- end }}

{{- define "kbmesh.modelsClaim" -}}
{{- .Values.models.claim.existingClaim | default (include "kbmesh.name" (dict "root" . "component" "models")) -}}
{{- end }}

{{/* What embedder and reranker are made of. Takes {root, component, values}; gives a dict for kbmesh.deployment. */}}
{{- define "kbmesh.inferenceEnvironment" -}}
{{- $gpu := gt (int .values.gpu.count) 0 -}}
- name: KBMESH_MODELS
  value: {{ include "kbmesh.modelsFolder" .root }}
- name: KBMESH_MODEL
  value: {{ .values.model | quote }}
- name: KBMESH_DEVICE
  value: {{ $gpu | ternary "cuda" "cpu" }}
{{- if $gpu }}
- name: KBMESH_REQUIRE_DEVICE
  value: cuda
- name: CUDA_CACHE_PATH
  value: /cache/cuda
{{- end }}
- name: KBMESH_SCALER_PEERS
  value: {{ include "kbmesh.name" . }}-headless:{{ (index (include "kbmesh.facts" . | fromYaml) .component).port }}
- name: HF_HOME
  value: /cache/huggingface
{{- end }}

{{- define "kbmesh.inferenceMounts" -}}
- {name: cache, mountPath: /cache}
{{- if ne .root.Values.models.source "none" }}
- {name: models, mountPath: /models, readOnly: true}
{{- end }}
{{- if .values.sharedMemorySize }}
- {name: shared-memory, mountPath: /dev/shm}
{{- end }}
{{- end }}

{{- define "kbmesh.inferenceVolumes" -}}
{{- if ne .root.Values.models.source "none" -}}
{{ include "kbmesh.modelVolume" . }}
{{ end -}}
- name: cache
  {{- if .values.cache.existingClaim }}
  persistentVolumeClaim:
    claimName: {{ .values.cache.existingClaim }}
  {{- else }}
  emptyDir:
    sizeLimit: {{ .values.cache.size }}
  {{- end }}
{{- with .values.sharedMemorySize }}
- name: shared-memory
  emptyDir:
    medium: Memory
    sizeLimit: {{ . }}
{{- end }}
{{- end }}

{{/* The Deployment of the embedder or the reranker. Takes {root, component}. */}}
{{- define "kbmesh.inferenceDeployment" -}}
{{- $values := index .root.Values .component -}}
{{- $scope := merge (dict "values" $values) . -}}
{{- $variant := gt (int $values.gpu.count) 0 | ternary "cuda" "cpu" -}}
{{- $_ := set $scope "image" (include "kbmesh.image" (dict "root" .root "image" $values.image "repository" (printf "kbmesh-%s-%s" .component $variant))) -}}
{{- $_ = set $scope "environment" (include "kbmesh.inferenceEnvironment" $scope) -}}
{{- $_ = set $scope "mounts" (include "kbmesh.inferenceMounts" $scope) -}}
{{- $_ = set $scope "volumes" (include "kbmesh.inferenceVolumes" $scope) -}}
{{- if eq .root.Values.models.source "pull" -}}
{{- $names := .root.Values.models.pull.names | default (splitList "," $values.model) -}}
{{- $_ = set $scope "initContainers" (include "kbmesh.modelContainers" (dict "root" .root "names" $names)) -}}
{{- end -}}
{{ include "kbmesh.deployment" $scope }}
{{- end }}

{{/* The Job that fills the claim, as a JobSpec. Takes {root, component, values}. */}}
{{- define "kbmesh.modelsJob" -}}
{{- $of := .root.Values -}}
{{- $names := $of.models.pull.names | default (uniq (concat (splitList "," $of.embedder.model) (splitList "," $of.reranker.model))) -}}
backoffLimit: 4
template:
  metadata:
    {{- include "kbmesh.podMetadata" . | nindent 4 }}
  spec:
    {{- include "kbmesh.pod" . | nindent 4 }}
    restartPolicy: OnFailure
    {{- if gt (len $names) 1 }}
    initContainers:
      {{- include "kbmesh.modelContainers" (dict "root" .root "names" (initial $names)) | nindent 6 }}
    {{- end }}
    containers:
      {{- include "kbmesh.modelContainers" (dict "root" .root "names" (list (last $names))) | replace "pull-0" "pull" | nindent 6 }}
    volumes:
      - name: tmp
        emptyDir: {}
      - name: cache
        emptyDir: {}
      - name: models
        persistentVolumeClaim:
          claimName: {{ include "kbmesh.modelsClaim" .root }}
{{- end }}
