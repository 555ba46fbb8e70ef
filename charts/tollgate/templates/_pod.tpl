{{/* The pieces of a pod. Each takes `root` and `workload`. */}}

{{/* Folders that are mounted: `name`, and the volume's source. A role gets what its doors need, and nothing else. */}}
{{- define "tollgate.volumes" -}}
{{- $values := .root.Values -}}
{{- $role := .workload.role -}}
{{- $fullname := include "tollgate.fullname" .root -}}
- name: sealing
  secret:
    secretName: {{ $values.sealingKey.existingSecret }}
    defaultMode: 288 # 0440, which YAML 1.2 reads as 440
    items:
      - key: {{ $values.sealingKey.key }}
        path: sealing.key
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
{{ include "tollgate.fileVolume" (dict "name" "upstreams" "source" $values.upstreams "made" (printf "%s-upstreams" $fullname)) }}
{{- end }}
{{- if ne $role "dispatcher" }}
{{ include "tollgate.fileVolume" (dict "name" "engines" "source" $values.engines "made" (printf "%s-engines" $fullname)) }}
{{- end }}
{{- if eq $role "controller" }}
{{- if $values.planLimits.limits }}
- name: plan-limits
  configMap:
    name: {{ $fullname }}-plan-limits
{{- end }}
{{ include "tollgate.apiToken" . }}
{{- end }}
{{- end -}}

{{/* A file, and beside it the keys that it names. The program sees both change. */}}
{{- define "tollgate.fileVolume" -}}
- name: {{ .name }}
  projected:
    defaultMode: 288
    sources:
      - configMap:
          name: {{ .source.existingConfigMap | default .made }}
          items:
            - key: {{ ternary .source.key (printf "%s.yaml" .name) (not (empty .source.existingConfigMap)) }}
              path: {{ .name }}.yaml
      {{- with .source.keysSecret }}
      - secret:
          name: {{ . }}
      {{- end }}
{{- end -}}

{{/* What Kubernetes would mount into every container of the pod, in the one that asks the API server. */}}
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

{{- define "tollgate.mounts" -}}
{{- range (include "tollgate.volumes" . | fromYamlArray) }}
- name: {{ .name }}
  mountPath: {{ ternary "/var/run/secrets/kubernetes.io/serviceaccount" (printf "/etc/tollgate/%s" .name) (eq .name "api-token") }}
  readOnly: true
{{- end }}
{{- end -}}

{{/* Only names of docs/configuration.md. */}}
{{- define "tollgate.env" -}}
{{- $values := .root.Values -}}
{{- $role := .workload.role -}}
{{- $own := .workload.values -}}
{{- $env := dict "OPS_HOST" $values.host "STORE_URL_FILE" (printf "/etc/tollgate/store/%s" $values.store.key) "SEALING_KEY_FILE" "/etc/tollgate/sealing/sealing.key" "SHUTDOWN_SECONDS" $own.shutdownSeconds -}}
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
{{- end -}}
{{- if eq $role "worker" -}}
{{- with $own.kinds }}{{ $_ := set $env "WORKER_KINDS" (join "," .) }}{{ end -}}
{{- with $own.slots }}{{ $_ := set $env "WORKER_SLOTS" . }}{{ end -}}
{{- end -}}
{{- if eq $role "controller" -}}
{{- $_ := set $env "RESOURCES_URL" (include "tollgate.resourcesUrl" .root) -}}
{{- if $values.planLimits.limits }}{{ $_ := set $env "PLAN_LIMITS" "/etc/tollgate/plan-limits/plan-limits.yaml" }}{{ end -}}
{{- end -}}
{{- range $name, $value := merge $env $values.settings $values.env }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- end -}}

{{- define "tollgate.filesUrl" -}}
{{- with .Values.files -}}
{{ .url }}{{ if .existingSecret }}{{ contains "?" .url | ternary "&" "?" }}accessKeyIdFile=/etc/tollgate/files/access-key-id&secretAccessKeyFile=/etc/tollgate/files/secret-access-key{{ end }}
{{- end -}}
{{- end -}}

{{/* Of every pod: restricted Pod Security, and numbers that no user of a node has. */}}
{{- define "tollgate.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "tollgate.containerSecurity" -}}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* The program tells by itself when it may be asked (readyz) and never dies of what it waits for (livez). */}}
{{- define "tollgate.probes" -}}
startupProbe:
  httpGet: { path: /livez, port: ops }
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: { path: /livez, port: ops }
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: { path: /readyz, port: ops }
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end -}}

{{/* Pods of a workload on different nodes and zones where there are any; a cluster of one node takes them all the same. */}}
{{- define "tollgate.placement" -}}
{{- $labels := merge (include "tollgate.selector" .root | fromYaml) (include "tollgate.component" .workload | fromYaml) -}}
{{- $own := .workload.values -}}
{{- if $own.affinity -}}
affinity:
  {{- toYaml $own.affinity | nindent 2 }}
{{- else -}}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- toYaml $labels | nindent 14 }}
{{- end }}
{{- if .root.Values.topologySpread.enabled }}
topologySpreadConstraints:
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- toYaml $labels | nindent 8 }}
    matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end }}
{{- with $own.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
