{{/* The Indexed Job of the ingest worker, as a JobSpec. Takes {root, component, values}. Each pod takes the shard of
     the manifest whose number Kubernetes gives it in JOB_COMPLETION_INDEX; what is unchanged costs nothing, so that a
     shard may be run again at any time. */}}
{{- define "kbmesh.ingestJob" -}}
{{- $v := .values -}}
completionMode: Indexed
completions: {{ $v.shards }}
parallelism: {{ min $v.parallelism $v.shards }}
backoffLimitPerIndex: {{ $v.retriesPerShard }}
maxFailedIndexes: {{ $v.shards }}
podFailurePolicy:
  rules:
    # Called wrongly: so would be every other shard.
    - action: FailJob
      onExitCodes: {containerName: ingest, operator: In, values: [2]}
    # A node that is drained is no failure of the shard.
    - action: Ignore
      onPodConditions: [{type: DisruptionTarget, status: "True"}]
{{- with $v.activeDeadlineSeconds }}
activeDeadlineSeconds: {{ . }}
{{- end }}
{{- if and (ne $v.mode "job") $v.keepFinishedSeconds }}
ttlSecondsAfterFinished: {{ $v.keepFinishedSeconds }}
{{- end }}
template:
  metadata:
    {{- include "kbmesh.podMetadata" . | nindent 4 }}
  spec:
    {{- include "kbmesh.pod" . | nindent 4 }}
    restartPolicy: Never
    containers:
      - name: ingest
        image: {{ include "kbmesh.image.tools" .root | quote }}
        imagePullPolicy: {{ .root.Values.images.pullPolicy }}
        args:
          - ingest
          - {{ $v.knowledgeBase | quote }}
          - --manifest
          - {{ $v.manifest | quote }}
          - --shard
          - {{ $v.shards | int | toString | quote }}
          {{- range $v.args }}
          - {{ . | quote }}
          {{- end }}
        env:
          {{- include "kbmesh.commandEnvironment" . | nindent 10 }}
          {{- include "kbmesh.callerEnvironment" . | nindent 10 }}
          - name: KBMESH_TENANT
            value: {{ $v.tenant | quote }}
        {{- include "kbmesh.resources" . | nindent 8 }}
        {{- include "kbmesh.containerSecurity" . | nindent 8 }}
        volumeMounts:
          - {name: tmp, mountPath: /tmp}
          {{- if .root.Values.tls.enabled }}
          {{- include "kbmesh.tlsMount" . | nindent 10 }}
          {{- end }}
          {{- with $v.extraVolumeMounts }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
    volumes:
      - name: tmp
        emptyDir:
          sizeLimit: {{ $v.tmpSize }}
      {{- if .root.Values.tls.enabled }}
      {{- include "kbmesh.tlsVolume" (dict "root" .root "part" "command") | nindent 6 }}
      {{- end }}
      {{- with $v.extraVolumes }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
{{- end }}
