{{/* Parts of the pod template. `placement` takes `root` and `workload`. */}}

{{/* Image of a container, and when it is pulled. Takes `root` and `own`, what a role sets of it: its own repository or tag does not have the digest of the common image. */}}
{{- define "tollgate.image" -}}
{{- $own := .own | default dict -}}
{{- $common := ternary (omit .root.Values.image "digest") .root.Values.image (or (hasKey $own "repository") (hasKey $own "tag")) -}}
{{- with merge (dict) $own $common -}}
image: {{ .repository }}:{{ .tag | default $.root.Chart.AppVersion }}{{ with .digest }}@{{ . }}{{ end }}
imagePullPolicy: {{ .pullPolicy }}
{{- end -}}
{{- end -}}

{{/* Name of the PriorityClass of all pods. */}}
{{- define "tollgate.priorityClass" -}}
{{- .Values.priorityClass.name | default (include "tollgate.fullname" .) -}}
{{- end -}}

{{/* Pod securityContext: restricted Pod Security, with ids that no user of a node has, or those that the cluster assigns. Takes the root. */}}
{{- define "tollgate.podSecurity" -}}
runAsNonRoot: true
{{- if .Values.fixedIds }}
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
{{- end }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* Container securityContext: restricted Pod Security, read-only root. Takes the root. */}}
{{- define "tollgate.containerSecurity" -}}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
runAsNonRoot: true
{{- if .Values.fixedIds }}
runAsUser: 65532
runAsGroup: 65532
{{- end }}
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* Probes. /readyz reports backends that are not ready; /livez does not depend on them. Takes what a role sets of their numbers. */}}
{{- define "tollgate.probes" -}}
{{- $own := . | default dict -}}
{{- range $name, $probe := dict
  "startup" (dict "path" "/livez" "numbers" (dict "periodSeconds" 2 "failureThreshold" 60))
  "liveness" (dict "path" "/livez" "numbers" (dict "periodSeconds" 10 "timeoutSeconds" 5 "failureThreshold" 6))
  "readiness" (dict "path" "/readyz" "numbers" (dict "periodSeconds" 5 "timeoutSeconds" 5 "failureThreshold" 2)) }}
{{ $name }}Probe:
  httpGet: { path: {{ $probe.path }}, port: ops }
  {{- merge (dict) (get $own $name | default dict) $probe.numbers | toYaml | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Affinity, topology spread, node selector and tolerations: pods of a workload prefer different nodes and zones. */}}
{{- define "tollgate.placement" -}}
{{- $labels := merge (include "tollgate.selector" .root | fromYaml) (include "tollgate.component" .workload | fromYaml) -}}
{{- $own := .workload.values -}}
{{- include "tollgate.nodes" $own }}
{{- if not $own.affinity }}
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
{{- range .root.Values.topologySpread.constraints }}
  - {{- toYaml (ternary . (merge (dict "labelSelector" (dict "matchLabels" $labels)) .) (hasKey . "labelSelector")) | nindent 4 }}
{{- else }}
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
{{- end }}
{{- end -}}

{{/* What a role says of the nodes of its pods, and of the hosts that they reach. Takes the values of the role. */}}
{{- define "tollgate.nodes" -}}
{{- range $member := list "affinity" "nodeSelector" "tolerations" "hostAliases" }}
{{- with index $ $member }}
{{ $member }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}
