{{/* Host name of publicUrl, the default host of the Ingress and the HTTPRoute. */}}
{{- define "tollgate.publicHost" -}}
{{- (urlParse .Values.publicUrl).hostname -}}
{{- end -}}

{{/* FILES_URL of gateways and workers. */}}
{{- define "tollgate.filesUrl" -}}
{{- with .Values.files -}}
{{ .url }}{{ if .existingSecret }}{{ contains "?" .url | ternary "&" "?" }}accessKeyIdFile=/etc/tollgate/files/access-key-id&secretAccessKeyFile=/etc/tollgate/files/secret-access-key{{ end }}
{{- end -}}
{{- end -}}

{{/* RESOURCES_URL of the controller, and of gateways that write ApiKeys. */}}
{{- define "tollgate.resourcesUrl" -}}
kubernetes:{{ with .Values.namespaces }}?namespace={{ join "," . }}&lease={{ include "tollgate.lease" $ }}{{ end }}
{{- end -}}

{{/* Name of the Lease for leader election. A namespaced installation has one of its own, since others may be in the cluster. */}}
{{- define "tollgate.lease" -}}
{{- if .Values.namespaces -}}{{ include "tollgate.fullname" . }}-controller{{- else -}}tollgate-controller{{- end -}}
{{- end -}}

{{/* Port of the sign-in provider; empty without a dashboard. */}}
{{- define "tollgate.issuerPort" -}}
{{- with .Values.dashboard -}}
{{- if .enabled -}}
{{- $url := urlParse .oidc.issuer -}}
{{- regexFind ":[0-9]+$" $url.host | trimPrefix ":" | default (ternary "443" "80" (eq $url.scheme "https")) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Port of the OTLP endpoint; empty without one. */}}
{{- define "tollgate.collectorPort" -}}
{{- with .Values.traces.endpoint -}}
{{- $url := urlParse . -}}
{{- regexFind ":[0-9]+$" $url.host | trimPrefix ":" | default (ternary "443" "80" (eq $url.scheme "https")) -}}
{{- end -}}
{{- end -}}
