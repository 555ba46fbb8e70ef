{{/* Volumes and mounts of a pod. Each takes `root` and `workload`. */}}

{{/* Volumes of a role: the Secrets and ConfigMaps of the backends that it opens, and no others. Only workers write files. */}}
{{- define "tollgate.volumes" -}}
{{- $values := .root.Values -}}
{{- $role := .workload.role -}}
{{- $fullname := include "tollgate.fullname" .root -}}
{{- if include "tollgate.hasDerivedKeys" (dict "root" .root "role" $role) }}
- name: derived
  secret:
    secretName: {{ $values.derivedKeys.existingSecret }}
    defaultMode: 288 # 0440, which YAML 1.2 reads as 440
    items:
      - key: {{ $values.derivedKeys.key }}
        path: derived.keys
{{- else }}
- name: sealing
  secret:
    secretName: {{ $values.sealingKey.existingSecret }}
    defaultMode: 288 # 0440, which YAML 1.2 reads as 440
    items:
      - key: {{ $values.sealingKey.key }}
        path: sealing.key
{{- end }}
- name: store
  secret:
    secretName: {{ $values.store.existingSecret }}
    defaultMode: 288
{{- if ne $role "controller" }}
- name: broker
  secret:
    secretName: {{ $values.broker.existingSecret }}
    defaultMode: 288
{{- end }}
{{- if and $values.files.existingSecret (has $role (list "gateway" "worker")) }}
- name: files
  secret:
    secretName: {{ $values.files.existingSecret }}
    defaultMode: 288
{{- end }}
{{- if eq $role "gateway" }}
{{ include "tollgate.fileVolume" (dict "name" "upstreams" "source" $values.upstreams "default" (printf "%s-upstreams" $fullname)) }}
{{- if include "tollgate.proxyRoutes" .root }}
{{ include "tollgate.fileVolume" (dict "name" "proxy-routes" "source" $values.proxyRoutes "default" (printf "%s-proxy-routes" $fullname)) }}
{{- end }}
{{- end }}
{{- if and (eq $role "gateway") $values.dashboard.enabled $values.dashboard.oidc.existingSecret }}
- name: oidc
  secret:
    secretName: {{ $values.dashboard.oidc.existingSecret }}
    defaultMode: 288
    items:
      - key: {{ $values.dashboard.oidc.key }}
        path: {{ $values.dashboard.oidc.key }}
{{- end }}
{{- if ne $role "dispatcher" }}
{{ include "tollgate.fileVolume" (dict "name" "engines" "source" $values.engines "default" (printf "%s-engines" $fullname)) }}
{{- end }}
{{- with $values.caBundle }}
{{- if or .existingConfigMap .existingSecret }}
{{ include "tollgate.bundleVolume" . }}
{{- end }}
{{- end }}
{{- if eq $role "worker" }}
- name: scratch
  emptyDir:
    sizeLimit: {{ .workload.values.scratch.sizeLimit }}
{{- end }}
{{- if eq $role "controller" }}
{{- if $values.planLimits.limits }}
- name: plan-limits
  configMap:
    name: {{ $fullname }}-plan-limits
{{- end }}
{{- end }}
{{- if include "tollgate.asksApiServer" (dict "root" .root "role" $role) }}
{{ include "tollgate.apiToken" . }}
{{- end }}
{{- end -}}

{{/* A configuration file together with the keys that it names. The program notices changes of both. */}}
{{- define "tollgate.fileVolume" -}}
- name: {{ .name }}
  projected:
    defaultMode: 288
    sources:
      - {{ ternary "secret" "configMap" (not (empty .source.existingSecret)) }}:
          name: {{ .source.existingSecret | default .source.existingConfigMap | default .default }}
          items:
            - key: {{ ternary (printf "%s.yaml" .name) .source.key (empty (or .source.existingSecret .source.existingConfigMap)) }}
              path: {{ .name }}.yaml
      {{- with .source.keysSecret }}
      - secret:
          name: {{ . }}
      {{- end }}
{{- end -}}

{{/* Certificate authorities. Takes `caBundle`. */}}
{{- define "tollgate.bundleVolume" -}}
- name: ca
  projected:
    defaultMode: 288
    sources:
      - {{ ternary "configMap" "secret" (empty .existingSecret) }}:
          name: {{ .existingSecret | default .existingConfigMap }}
          items:
            - key: {{ .key }}
              path: ca.crt
{{- end -}}

{{/* ServiceAccount token of a role that asks the API server, as Kubernetes would mount it into every container of a pod. */}}
{{- define "tollgate.apiToken" -}}
- name: api-token
  projected:
    defaultMode: 288
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: 3607
      - configMap:
          name: kube-root-ca.crt
          items:
            - key: ca.crt
              path: ca.crt
      - downwardAPI:
          items:
            - path: namespace
              fieldRef:
                fieldPath: metadata.namespace
{{- end -}}

{{/* Mounts of `tollgate.volumes`. */}}
{{- define "tollgate.mounts" -}}
{{- range (include "tollgate.volumes" . | fromYamlArray) }}
- name: {{ .name }}
{{- if eq .name "scratch" }}
  mountPath: /tmp
{{- else }}
  mountPath: {{ ternary "/var/run/secrets/kubernetes.io/serviceaccount" (printf "/etc/tollgate/%s" .name) (eq .name "api-token") }}
  readOnly: true
{{- end }}
{{- end }}
{{- end -}}
