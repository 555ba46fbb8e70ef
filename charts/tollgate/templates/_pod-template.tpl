{{/* Parts of the pod template. `placement` takes `root` and `workload`. */}}

{{/* Image reference with its tag, and with its digest if there is one. */}}
{{- define "tollgate.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
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

{{/* Probes. /readyz reports backends that are not ready; /livez does not depend on them. */}}
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

{{/* Affinity, topology spread, node selector and tolerations: pods of a workload prefer different nodes and zones. */}}
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
{{- with $own.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
