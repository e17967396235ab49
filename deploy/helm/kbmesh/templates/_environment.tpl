{{/* A value of an environment variable. Numbers by JSON: Go would write 1048576 as 1.048576e+06. */}}
{{- define "kbmesh.envValue" -}}
{{- kindIs "string" . | ternary . (toJson .) | quote -}}
{{- end }}

{{/* Environment that all servers have. Takes {root, component, values}. The lists of `settings` cannot name what the
     chart sets itself, so that no variable comes twice. */}}
{{- define "kbmesh.serverEnvironment" -}}
- name: HOME
  value: /tmp
- name: KBMESH_HOST
  value: {{ .root.Values.listenAddress | quote }}
- name: KBMESH_GRACE_SECONDS
  value: {{ include "kbmesh.envValue" .values.drain.graceSeconds }}
- name: KBMESH_MAX_CONNECTION_AGE_SECONDS
  value: {{ include "kbmesh.envValue" .values.maxConnectionAgeSeconds }}
{{ include "kbmesh.transportEnvironment" . }}
{{- $settings := merge (dict) .values.settings .root.Values.settings }}
{{- range $field := keys $settings | sortAlpha }}
- name: KBMESH_{{ upper $field }}
  value: {{ include "kbmesh.envValue" (index $settings $field) }}
{{- end }}
{{- range $field, $reference := .values.secretSettings | default dict }}
- name: KBMESH_{{ upper $field }}
  valueFrom:
    secretKeyRef:
      name: {{ $reference.secret }}
      key: {{ $reference.key }}
{{- end }}
{{- with concat .root.Values.pods.extraEnv .values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Environment of what runs the `kbmesh` command. Takes {root, values}. */}}
{{- define "kbmesh.commandEnvironment" -}}
- name: HOME
  value: /tmp
- name: KBMESH_HOME
  value: /tmp/kbmesh
{{- with concat .root.Values.pods.extraEnv (.values.extraEnv | default list) }}
{{ toYaml . }}
{{- end }}
{{- end }}
