{{/* Rules of the controller for Plans, ApiKeys and Events. A test removes each verb in turn. */}}
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

{{/* Rules of the controller for Secrets. RBAC cannot select by label, so they cover all Secrets of a namespace. */}}
{{- define "tollgate.secretRules" -}}
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch, create, update, delete]
{{- end -}}

{{/* Rules of gateways that write ApiKeys for the people of the dashboard. */}}
{{- define "tollgate.gatewayRules" -}}
- apiGroups: [tollgate.dev]
  resources: [apikeys]
  verbs: [get, list, create, patch]
{{- end -}}

{{/* Rules of the role `view`: read Plans and ApiKeys. */}}
{{- define "tollgate.viewRules" -}}
- apiGroups: [tollgate.dev]
  resources: [plans, apikeys]
  verbs: [get, list, watch]
{{- end -}}

{{/* Rules of the role `edit`: write ApiKeys, and Plans where tenants may. */}}
{{- define "tollgate.editRules" -}}
- apiGroups: [tollgate.dev]
  resources: [apikeys{{ if .Values.tenantRoles.tenantsWritePlans }}, plans{{ end }}]
  verbs: [create, update, patch, delete, deletecollection]
{{- end -}}

{{/* Rules of the role `plan-admin`: write Plans. */}}
{{- define "tollgate.planAdminRules" -}}
{{ include "tollgate.viewRules" . }}
- apiGroups: [tollgate.dev]
  resources: [plans]
  verbs: [create, update, patch, delete, deletecollection]
{{- end -}}
