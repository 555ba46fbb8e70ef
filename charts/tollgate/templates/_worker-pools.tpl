{{/* Every Deployment as `role`, `name`, `values`, and `pool` of a worker. The values of a pool are its entry of `workerPools` over the defaults in `worker`; what only fits together replaces its default as a whole. */}}
{{- define "tollgate.workloads" -}}
{{- $fullname := include "tollgate.fullname" . -}}
{{- $workloads := list -}}
{{- range $role := list "gateway" "dispatcher" "controller" -}}
{{- $workloads = append $workloads (dict "role" $role "name" (printf "%s-%s" $fullname $role) "values" (index $.Values $role)) -}}
{{- end -}}
{{- range $pool := .Values.workerPools -}}
{{- $common := deepCopy $.Values.worker -}}
{{- $image := $pool.image | default dict -}}
{{- if or (hasKey $image "repository") (hasKey $image "tag") }}{{ $_ := set $common "image" (omit ($common.image | default dict) "digest") }}{{ end -}}
{{- if $pool.strategy }}{{ $_ := unset $common "strategy" }}{{ end -}}
{{- $budget := $pool.podDisruptionBudget | default dict -}}
{{- if or (hasKey $budget "minAvailable") (hasKey $budget "maxUnavailable") -}}
{{- $_ := set $common "podDisruptionBudget" (omit ($common.podDisruptionBudget | default dict) "minAvailable" "maxUnavailable") -}}
{{- end -}}
{{- $values := mergeOverwrite $common (omit $pool "name") -}}
{{- $workloads = append $workloads (dict "role" "worker" "pool" $pool.name "name" (printf "%s-worker-%s" $fullname $pool.name) "values" $values) -}}
{{- end -}}
{{- dict "workloads" $workloads | toYaml -}}
{{- end -}}

{{/* Non-empty if a ScaledObject of KEDA sets the replicas of a workload. Takes `root` and `workload`. */}}
{{- define "tollgate.isScaledByKeda" -}}
{{- if and (dig "keda" "enabled" false .workload.values) (.root.Capabilities.APIVersions.Has "keda.sh/v1alpha1") }}yes{{ end -}}
{{- end -}}

{{/* Every kind and operation, each of which has a topic. */}}
{{- define "tollgate.kinds" -}}
[image, video, music, background_remove, upscale, ai_edit, inpaint, trim, merge]
{{- end -}}

{{/*
Present number of pods of a workload that a HorizontalPodAutoscaler scales, so that switching it on does not remove Helm's number. A release that is applied on the server, as Helm 4
installs it, gives the number up as soon as somebody has scaled the Deployment: it would be in conflict at a rollback. Helm 3, and Helm 4 with a release of Helm 3, have no conflicts and
would reset a number that they give up. Takes `root` and `workload`.
*/}}
{{- define "tollgate.presentReplicas" -}}
{{- $isHelm3 := hasPrefix "v3" .root.Capabilities.HelmVersion.Version -}}
{{- with lookup "apps/v1" "Deployment" .root.Release.Namespace .workload.name -}}
{{- $isApplied := false -}}
{{- $isScaled := false -}}
{{- range .metadata.managedFields -}}
{{- if eq .operation "Apply" }}{{ $isApplied = true }}{{ end -}}
{{- if eq (.subresource | default "") "scale" }}{{ $isScaled = true }}{{ end -}}
{{- end -}}
{{- if or $isHelm3 (not $isApplied) (not $isScaled) -}}{{ .spec.replicas }}{{- end -}}
{{- end -}}
{{- end -}}
