{{/* Environment variables of a container, all of them settings of docs/configuration.md. Takes `root` and `workload`. */}}
{{- define "tollgate.env" -}}
{{- $values := .root.Values -}}
{{- $role := .workload.role -}}
{{- $own := .workload.values -}}
{{- $env := dict "OPS_HOST" $values.host "STORE_URL_FILE" (printf "/etc/tollgate/store/%s" $values.store.key) "SHUTDOWN_SECONDS" $own.shutdownSeconds -}}
{{- if include "tollgate.hasDerivedKeys" (dict "root" .root "role" $role) }}{{ $_ := set $env "DERIVED_KEYS_FILE" "/etc/tollgate/derived/derived.keys" }}{{ else }}{{ $_ := set $env "SEALING_KEY_FILE" "/etc/tollgate/sealing/sealing.key" }}{{ end -}}
{{- if ne $role "controller" -}}
{{- $_ := set $env "BROKER_URL_FILE" (printf "/etc/tollgate/broker/%s" $values.broker.key) -}}
{{- end -}}
{{- if ne $role "dispatcher" -}}
{{- $_ := set $env "ENGINES" "/etc/tollgate/engines/engines.yaml" -}}
{{- end -}}
{{- if has $role (list "gateway" "worker") -}}
{{- $_ := set $env "PUBLIC_URL" $values.publicUrl -}}
{{- $_ := set $env "FILES_URL" (include "tollgate.filesUrl" .root) -}}
{{- end -}}
{{- if eq $role "gateway" -}}
{{- $_ := set $env "HOST" $values.host -}}
{{- $_ := set $env "UPSTREAMS" "/etc/tollgate/upstreams/upstreams.yaml" -}}
{{- $_ := set $env "DRAIN_DELAY_SECONDS" $own.drainDelaySeconds -}}
{{- if include "tollgate.proxyRoutes" .root }}{{ $_ := set $env "PROXY_ROUTES" "/etc/tollgate/proxy-routes/proxy-routes.yaml" }}{{ end -}}
{{- end -}}
{{- if and (eq $role "gateway") $values.dashboard.enabled -}}
{{- with $values.dashboard.oidc -}}
{{- $env = merge $env (dict "DASHBOARD" "oidc" "OIDC_ISSUER" .issuer "OIDC_CLIENT_ID" .clientId "OIDC_TENANT_CLAIM" .tenantClaim "OIDC_SCOPES" .scopes) -}}
{{- if .existingSecret }}{{ $_ := set $env "OIDC_CLIENT_SECRET_FILE" (printf "/etc/tollgate/oidc/%s" .key) }}{{ end -}}
{{- end -}}
{{- if $values.dashboard.keyManagement -}}
{{- $env = merge $env (dict "DASHBOARD_KEY_MANAGEMENT" "true" "RESOURCES_URL" (include "tollgate.resourcesUrl" .root)) -}}
{{- end -}}
{{- else if eq $role "gateway" -}}
{{- $_ := set $env "DASHBOARD" "off" -}}
{{- end -}}
{{- if eq $role "worker" -}}
{{- with $own.kinds }}{{ $_ := set $env "WORKER_KINDS" (join "," .) }}{{ end -}}
{{- with $own.slots }}{{ $_ := set $env "WORKER_SLOTS" . }}{{ end -}}
{{- end -}}
{{- if eq $role "controller" -}}
{{- $_ := set $env "RESOURCES_URL" (include "tollgate.resourcesUrl" .root) -}}
{{- if $values.planLimits.limits }}{{ $_ := set $env "PLAN_LIMITS" "/etc/tollgate/plan-limits/plan-limits.yaml" }}{{ end -}}
{{- end -}}
{{- if or $values.caBundle.existingConfigMap $values.caBundle.existingSecret -}}
{{- $_ := set $env "NODE_EXTRA_CA_CERTS" "/etc/tollgate/ca/ca.crt" -}}
{{- end -}}
{{- with $values.traces -}}
{{- if .endpoint -}}
{{- $env = merge $env (dict "OTEL_EXPORTER_OTLP_ENDPOINT" .endpoint "OTEL_TRACES_SAMPLER" .sampler "OTEL_TRACES_SAMPLER_ARG" (float64 .samplerArg | printf "%.6f")) -}}
{{- end -}}
{{- end -}}
{{- range $name, $_ := $values.env }}{{ if hasKey $env $name }}{{ fail (printf "env sets %s, which follows from another value." $name) }}{{ end }}{{ end -}}
{{- range $name, $value := merge $env $values.settings $values.env }}
- name: {{ $name }}
  value: {{ include "tollgate.text" $value | quote }}
{{- end }}
{{- with $values.traces }}
{{- if and .endpoint .headers.existingSecret }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom: { secretKeyRef: { name: {{ .headers.existingSecret }}, key: {{ .headers.key }} } }
{{- end }}
{{- end }}
{{- end -}}

{{/* A value of `settings` or `env` as text. Helm reads every number as a float, which it would write as 2e+06 from a million on. */}}
{{- define "tollgate.text" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}{{ else }}{{ toString . }}{{ end -}}
{{- end -}}

{{/* Non-empty if pods of the role ask the API server. Takes `root` and `role`. */}}
{{- define "tollgate.asksApiServer" -}}
{{- with .root.Values.dashboard -}}
{{- if or (eq $.role "controller") (and (eq $.role "gateway") .enabled .keyManagement) }}yes{{ end -}}
{{- end -}}
{{- end -}}

{{/* Non-empty if pods of the role have derived keys in place of the sealing key. Takes `root` and `role`. */}}
{{- define "tollgate.hasDerivedKeys" -}}
{{- if and .root.Values.derivedKeys.existingSecret (has .role (list "gateway" "worker")) }}yes{{ end -}}
{{- end -}}

{{/* Non-empty if gateways have a file of pass-through routes. Takes the root. */}}
{{- define "tollgate.proxyRoutes" -}}
{{- with .Values.proxyRoutes }}{{ if or .file .existingConfigMap .existingSecret }}yes{{ end }}{{ end -}}
{{- end -}}
