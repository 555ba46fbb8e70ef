{{- define "tollgate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* What every name begins with: short enough that a pool's name fits behind it. */}}
{{- define "tollgate.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "tollgate.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "tollgate.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Of every pod of the release, and never changed: selectors are immutable. */}}
{{- define "tollgate.selector" -}}
app.kubernetes.io/name: {{ include "tollgate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* As `tollgate.selector` with a role, for NetworkPolicies: Polaris takes one of whose labels exactly one is among `matchLabels`. Takes `root` and `role`. */}}
{{- define "tollgate.policySelector" -}}
matchLabels:
  app.kubernetes.io/component: {{ .role }}
matchExpressions:
{{- range $label, $value := include "tollgate.selector" .root | fromYaml }}
  - { key: {{ $label }}, operator: In, values: [{{ $value | quote }}] }
{{- end }}
{{- end -}}

{{- define "tollgate.labels" -}}
{{ include "tollgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: tollgate
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/* The labels that tell one workload's pods from another's. Takes a workload. */}}
{{- define "tollgate.component" -}}
app.kubernetes.io/component: {{ .role }}
{{- with .pool }}
tollgate.dev/pool: {{ . }}
{{- end }}
{{- end -}}

{{/* Every Deployment: `role`, `name`, `values`, and `pool` of a worker. */}}
{{- define "tollgate.workloads" -}}
{{- $fullname := include "tollgate.fullname" . -}}
{{- $workloads := list -}}
{{- range $role := list "gateway" "dispatcher" "controller" -}}
{{- $workloads = append $workloads (dict "role" $role "name" (printf "%s-%s" $fullname $role) "values" (index $.Values $role)) -}}
{{- end -}}
{{- range $pool := .Values.workerPools -}}
{{- $values := mergeOverwrite (deepCopy $.Values.worker) (omit $pool "name") -}}
{{- $workloads = append $workloads (dict "role" "worker" "pool" $pool.name "name" (printf "%s-worker-%s" $fullname $pool.name) "values" $values) -}}
{{- end -}}
{{- dict "workloads" $workloads | toYaml -}}
{{- end -}}

{{- define "tollgate.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tollgate.publicHost" -}}
{{- (urlParse .Values.publicUrl).hostname -}}
{{- end -}}

{{/* Only a namespaced installation needs a Lease of its own: others of that kind may be beside it. */}}
{{- define "tollgate.lease" -}}
{{- if .Values.namespaces -}}{{ include "tollgate.fullname" . }}-controller{{- else -}}tollgate-controller{{- end -}}
{{- end -}}

{{- define "tollgate.resourcesUrl" -}}
kubernetes:{{ with .Values.namespaces }}?namespace={{ join "," . }}&lease={{ include "tollgate.lease" $ }}{{ end }}
{{- end -}}

{{- define "tollgate.priorityClass" -}}
{{- .Values.priorityClass.name | default (include "tollgate.fullname" .) -}}
{{- end -}}
