{{/* What the controller does to the objects of tenants, and nothing more. A test takes each verb away in turn. */}}
{{- define "tollgate.controllerRules" -}}
- apiGroups: [tollgate.dev]
  resources: [plans]
  verbs: [list, watch]
- apiGroups: [tollgate.dev]
  resources: [apikeys]
  # Patched are its finalizers.
  verbs: [get, list, watch, patch]
- apiGroups: [tollgate.dev]
  resources: [plans/status, apikeys/status]
  verbs: [patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end -}}

{{/* RBAC knows no labels: whoever may watch the Secrets of its keys may read all of that namespace. */}}
{{- define "tollgate.secretRules" -}}
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch, create, update, delete]
{{- end -}}

{{- define "tollgate.viewRules" -}}
- apiGroups: [tollgate.dev]
  resources: [plans, apikeys]
  verbs: [get, list, watch]
{{- end -}}

{{- define "tollgate.editRules" -}}
- apiGroups: [tollgate.dev]
  resources: [apikeys{{ if .Values.tenantRoles.tenantsWritePlans }}, plans{{ end }}]
  verbs: [create, update, patch, delete, deletecollection]
{{- end -}}

{{- define "tollgate.planAdminRules" -}}
{{ include "tollgate.viewRules" . }}
- apiGroups: [tollgate.dev]
  resources: [plans]
  verbs: [create, update, patch, delete, deletecollection]
{{- end -}}
