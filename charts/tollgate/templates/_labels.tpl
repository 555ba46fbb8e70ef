{{- define "tollgate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Prefix of every object name. At most 40 characters, so that a pool name fits after it. */}}
{{- define "tollgate.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "tollgate.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "tollgate.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels of every object. */}}
{{- define "tollgate.labels" -}}
{{ include "tollgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: tollgate
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
Metadata of an object. Takes `root`, `name`, the `component` that it belongs to (or its `workload`), its own `labels` and `annotations`, and `namespace`: that
of the release unless given, and none where it is empty, for objects of the cluster.
*/}}
{{- define "tollgate.metadata" -}}
{{- $labels := include "tollgate.labels" .root | fromYaml -}}
{{- with .component }}{{ $_ := set $labels "app.kubernetes.io/component" . }}{{ end -}}
{{- with .workload }}{{ $labels = merge (include "tollgate.component" . | fromYaml) $labels }}{{ end -}}
name: {{ .name }}
{{- with hasKey . "namespace" | ternary .namespace .root.Release.Namespace }}
namespace: {{ . }}
{{- end }}
labels:
  {{- merge (dict) (.labels | default dict) $labels | toYaml | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) (.root.Values.commonAnnotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Selector labels of every pod of the release. Immutable, since selectors of Deployments are. */}}
{{- define "tollgate.selector" -}}
app.kubernetes.io/name: {{ include "tollgate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* `tollgate.selector` with a role, for NetworkPolicies; Polaris requires exactly one label of the pods in `matchLabels`. Takes `root` and `role`. */}}
{{- define "tollgate.policySelector" -}}
matchLabels:
  app.kubernetes.io/component: {{ .role }}
matchExpressions:
{{- range $label, $value := include "tollgate.selector" .root | fromYaml }}
  - { key: {{ $label }}, operator: In, values: [{{ $value | quote }}] }
{{- end }}
{{- end -}}

{{/* ServiceAccount of a role's pods. Takes `root` and `role`. */}}
{{- define "tollgate.serviceAccount" -}}
{{- (index .root.Values .role).serviceAccountName | default (printf "%s-%s" (include "tollgate.fullname" .root) .role) -}}
{{- end -}}

{{/* Labels that tell the pods of one workload from those of another. Takes a workload. */}}
{{- define "tollgate.component" -}}
app.kubernetes.io/component: {{ .role }}
{{- with .pool }}
tollgate.dev/pool: {{ . }}
{{- end }}
{{- end -}}
