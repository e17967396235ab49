{{/* Secret with the certificate of a part of the mesh. Takes {root, part}. */}}
{{- define "kbmesh.tlsSecret" -}}
{{- $tls := .root.Values.tls -}}
{{- $own := dict "retriever" $tls.secrets.retriever "chunker" $tls.secrets.chunker "embedder" $tls.secrets.embedder "reranker" $tls.secrets.reranker "edge" $tls.secrets.edge "command" $tls.secrets.command "keda" $tls.secrets.keda -}}
{{- $named := get $own .part -}}
{{- if and (not $named) (not $tls.certManager.enabled) -}}
{{- fail (printf "tls.secrets.%s is needed: tls.enabled is true, and tls.certManager.enabled makes no certificates" .part) -}}
{{- end -}}
{{- $named | default (printf "%s-tls" (include "kbmesh.name" (dict "root" .root "component" .part))) -}}
{{- end }}

{{- define "kbmesh.tlsVolume" -}}
- name: tls
  secret:
    secretName: {{ include "kbmesh.tlsSecret" . }}
    # The group reads it: pods do not run as its owner.
    defaultMode: 0440
{{- end }}

{{- define "kbmesh.tlsMount" -}}
- {name: tls, mountPath: /tls, readOnly: true}
{{- end }}

{{- define "kbmesh.tlsFiles" -}}
- name: KBMESH_TLS_CERT
  value: /tls/tls.crt
- name: KBMESH_TLS_KEY
  value: /tls/tls.key
- name: KBMESH_TLS_CA
  value: /tls/ca.crt
{{- end }}

{{/* Whether KEDA asks a component itself, and so needs a certificate. Takes {root, component, values}. */}}
{{- define "kbmesh.kedaAsks" -}}
{{- if and (has .component (list "embedder" "reranker")) (eq .values.autoscaling.by "keda") -}}true{{- end -}}
{{- end }}

{{/* Who may call a server, by the names in certificates, as a list in JSON. Takes {root, component, values}. Each
     certificate of the release carries the name of its part. */}}
{{- define "kbmesh.allowedCallers" -}}
{{- $parts := get (dict "chunker" (list "retriever") "embedder" (list "retriever" "chunker" "embedder") "reranker" (list "retriever" "reranker") "edge" (list "retriever")) .component | default list -}}
{{- if include "kbmesh.kedaAsks" . }}{{ $parts = append $parts "keda" }}{{ end -}}
{{- $names := list -}}
{{- range $parts }}{{ $names = append $names (include "kbmesh.name" (dict "root" $.root "component" .)) }}{{ end -}}
{{- if eq .component "retriever" -}}
{{- with .root.Values.tls.callers }}{{ $names = append . (include "kbmesh.name" (dict "root" $.root "component" "command")) }}{{ end -}}
{{- end -}}
{{- toJson $names -}}
{{- end }}

{{/* Whose word is taken for tenant and principals, as a list in JSON. Takes {root, component}. */}}
{{- define "kbmesh.trustedCallers" -}}
{{- $parts := get (dict "chunker" (list "retriever") "embedder" (list "retriever" "chunker") "reranker" (list "retriever")) .component | default list -}}
{{- $names := list -}}
{{- range $parts }}{{ $names = append $names (include "kbmesh.name" (dict "root" $.root "component" .)) }}{{ end -}}
{{- if eq .component "retriever" -}}
{{- with .root.Values.tls.trustedCallers }}{{ $names = append . (include "kbmesh.name" (dict "root" $.root "component" "command")) }}{{ end -}}
{{- end -}}
{{- toJson $names -}}
{{- end }}

{{/* What a server is told of its transport. Takes {root, component, values}. */}}
{{- define "kbmesh.transportEnvironment" -}}
{{- $tls := .root.Values.tls -}}
{{- if $tls.enabled -}}
{{- $trusted := include "kbmesh.trustedCallers" . | fromJsonArray -}}
{{ include "kbmesh.tlsFiles" . }}
- name: KBMESH_HEALTH_PORT
  value: {{ (index (include "kbmesh.facts" . | fromYaml) .component).healthPort | toJson | quote }}
{{- with include "kbmesh.allowedCallers" . | fromJsonArray }}
- name: KBMESH_TLS_ALLOWED_CALLERS
  value: {{ join "," . | quote }}
{{- end }}
{{- with $trusted }}
- name: KBMESH_TLS_TRUSTED_CALLERS
  value: {{ join "," . | quote }}
{{- end }}
- name: KBMESH_TRUST_TENANT_METADATA
  value: {{ and (eq .component "retriever") (not $trusted) .root.Values.trustTenantMetadata | toJson | quote }}
- name: KBMESH_ALLOW_PLAINTEXT
  value: {{ and (eq .component "retriever") $tls.allowPlaintext | toJson | quote }}
{{- else -}}
- name: KBMESH_TRUST_TENANT_METADATA
  value: {{ include "kbmesh.envValue" .root.Values.trustTenantMetadata }}
- name: KBMESH_ALLOW_PLAINTEXT
  value: "true"
{{- end }}
{{- end }}

{{/* What the kbmesh command is told where it calls the mesh. */}}
{{- define "kbmesh.callerEnvironment" -}}
- name: KBMESH_ENDPOINT
  value: {{ include "kbmesh.name" (dict "root" .root "component" "retriever") }}:7400
{{- if .root.Values.tls.enabled }}
{{ include "kbmesh.tlsFiles" . }}
{{- else }}
- name: KBMESH_ALLOW_PLAINTEXT
  value: "true"
{{- end }}
{{- end }}
