{{/* Fails with one sentence on values that the program would refuse at its start, and on fake upstreams and engines. */}}
{{- define "tollgate.checkValues" -}}
{{- $values := .Values -}}
{{- if not $values.publicUrl }}{{ fail "publicUrl must be the public address of the gateways, such as https://api.example.com." }}{{ end -}}
{{- if not $values.sealingKey.existingSecret }}{{ fail "sealingKey.existingSecret must name a Secret with 32 random bytes in base64. It encrypts the API keys; the chart does not create it, because without it the keys are lost." }}{{ end -}}
{{- if not $values.store.existingSecret }}{{ fail "store.existingSecret must name a Secret whose entry holds a mongodb:// address: processes cannot share SQLite." }}{{ end -}}
{{- if not $values.broker.existingSecret }}{{ fail "broker.existingSecret must name a Secret whose entry holds a kafka:// address: processes cannot share memory." }}{{ end -}}
{{- if not (or (eq $values.files.url "gridfs:") (hasPrefix "s3://" $values.files.url)) }}{{ fail (printf "files.url was %q; it must be gridfs: or s3://<bucket>, because pods do not share a disk." $values.files.url) }}{{ end -}}
{{- if and $values.files.existingSecret (not (hasPrefix "s3://" $values.files.url)) }}{{ fail "files.existingSecret holds the credentials for s3://<bucket>, but files.url is not an s3:// address." }}{{ end -}}
{{- range $name, $_ := $values.env }}{{ include "tollgate.checkSetting" (list "env" $name) }}{{ end -}}
{{- include "tollgate.checkSecret" (dict "root" . "value" "sealingKey" "secret" $values.sealingKey "schemes" list) -}}
{{- with $values.derivedKeys }}{{ if .existingSecret }}{{ include "tollgate.checkSecret" (dict "root" $ "value" "derivedKeys" "secret" . "schemes" (list "")) }}{{ end }}{{ end -}}
{{- include "tollgate.checkSecret" (dict "root" . "value" "store" "secret" $values.store "schemes" (list "mongodb://" "mongodb+srv://")) -}}
{{- include "tollgate.checkSecret" (dict "root" . "value" "broker" "secret" $values.broker "schemes" (list "kafka://")) -}}
{{- if not $values.workerPools }}{{ fail "workerPools must have a pool: without workers no task runs." }}{{ end -}}
{{- with $values.gateway.autoscaling -}}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) }}{{ fail (printf "gateway.autoscaling.minReplicas was %d; it must be at most maxReplicas, which is %d." (int .minReplicas) (int .maxReplicas)) }}{{ end -}}
{{- end -}}
{{- if and $values.serviceMonitor.enabled $values.podMonitor.enabled }}{{ fail "serviceMonitor.enabled and podMonitor.enabled are mutually exclusive: Prometheus would read every pod twice." }}{{ end -}}
{{- range $name := list "serviceMonitor" "podMonitor" "prometheusRule" "grafanaDashboards" -}}
{{- range $label, $_ := $values.commonLabels }}{{ if hasKey (index $values $name "labels" | default dict) $label }}{{ fail (printf "commonLabels and %s.labels both set the label %s." $name $label) }}{{ end }}{{ end -}}
{{- end -}}
{{- $needsKeys := and (hasPrefix "s3://" $values.files.url) (not $values.files.existingSecret) (not (contains "accessKeyIdFile=" $values.files.url)) -}}
{{- range $workload := (include "tollgate.workloads" . | fromYaml).workloads -}}
{{- if and $needsKeys (has $workload.role (list "gateway" "worker")) (not (contains "AWS_ACCESS_KEY_ID" (toJson (list $values.env $workload.values.extraEnv)))) }}{{ fail (printf "files.existingSecret must name a Secret with the credentials of files.url, or files.url must name their files: %s has none." $workload.name) }}{{ end -}}
{{- range $label, $_ := $values.commonLabels }}{{ if hasKey $workload.values.podLabels $label }}{{ fail (printf "commonLabels and podLabels of %s both set the label %s." $workload.name $label) }}{{ end }}{{ end -}}
{{- range $workload.values.extraEnv }}{{ include "tollgate.checkSetting" (list (printf "extraEnv of %s" $workload.name) .name) }}{{ end -}}
{{- with $workload.values.podDisruptionBudget -}}
{{- if and (hasKey . "minAvailable") (hasKey . "maxUnavailable") }}{{ fail (printf "podDisruptionBudget of %s has minAvailable and maxUnavailable, which are mutually exclusive." $workload.name) }}{{ end -}}
{{- if and (dig "enabled" $values.podDisruptionBudget.enabled .) (not (kindIs "string" (get . "minAvailable"))) (ge (int (get . "minAvailable")) (int $workload.values.replicas)) (not (dig "keda" "enabled" false $workload.values)) (not (dig "autoscaling" "enabled" false $workload.values)) }}{{ fail (printf "podDisruptionBudget.minAvailable of %s was %d; it must be less than replicas, which is %d, or no node can be drained." $workload.name (int .minAvailable) (int $workload.values.replicas)) }}{{ end -}}
{{- end -}}
{{- with $workload.values.keda -}}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) }}{{ fail (printf "keda.minReplicas of the pool %s was %d; it must be at most maxReplicas, which is %d." $workload.pool (int .minReplicas) (int .maxReplicas)) }}{{ end -}}
{{- end -}}
{{- if and (dig "keda" "enabled" false $workload.values) (not $workload.values.keda.kafka.bootstrapServers) }}{{ fail "worker.keda.kafka.bootstrapServers must be the brokers of Kafka, such as kafka.databases:9092: KEDA reads the lag of the workers there." }}{{ end -}}
{{- end -}}
{{- range $name := list "upstreams" "engines" -}}
{{- $source := index $values $name -}}
{{- if and $source.file $source.existingConfigMap }}{{ fail (printf "%s.file and %s.existingConfigMap are mutually exclusive." $name $name) }}{{ end -}}
{{- if not (or $source.file $source.existingConfigMap) }}{{ fail (printf "%s.file or %s.existingConfigMap is required: the chart has no default, so that no fake is served to customers." $name $name) }}{{ end -}}
{{- end -}}
{{- with $values.proxyRoutes -}}
{{- if gt (compact (list .file .existingConfigMap .existingSecret) | len) 1 }}{{ fail "proxyRoutes.file, proxyRoutes.existingConfigMap and proxyRoutes.existingSecret are mutually exclusive." }}{{ end -}}
{{- end -}}
{{- with $values.dashboard -}}
{{- if .enabled -}}
{{- if not (and .oidc.issuer .oidc.clientId) }}{{ fail "dashboard.oidc.issuer and dashboard.oidc.clientId are required when dashboard.enabled is true: people sign in with an OpenID Connect provider." }}{{ end -}}
{{- if not (regexMatch "^(https://|http://(localhost|127\\.0\\.0\\.1|\\[::1\\])([:/]|$))[^?#]*$" .oidc.issuer) }}{{ fail (printf "dashboard.oidc.issuer was %q; it must be an https address without query or fragment." .oidc.issuer) }}{{ end -}}
{{- $host := (urlParse $values.publicUrl).hostname -}}
{{- if not (or (hasPrefix "https://" $values.publicUrl) (has $host (list "localhost" "127.0.0.1"))) }}{{ fail "publicUrl must be an https address when dashboard.enabled is true: a session must not travel in the clear." }}{{ end -}}
{{- else if .keyManagement }}{{ fail "dashboard.keyManagement needs dashboard.enabled." }}{{ end -}}
{{- end -}}
{{- with $values.networkPolicy -}}
{{- $leads := list -}}
{{- if $values.ingress.enabled }}{{ $leads = append $leads "ingress.enabled" }}{{ end -}}
{{- if $values.httpRoute.enabled }}{{ $leads = append $leads "httpRoute.enabled" }}{{ end -}}
{{- if ne $values.gateway.service.type "ClusterIP" }}{{ $leads = append $leads (printf "gateway.service.type=%s" $values.gateway.service.type) }}{{ end -}}
{{- if and .enabled $leads (not .ingressFrom) }}{{ fail (printf "networkPolicy.ingressFrom must name the peers that may call the gateways, because of %s: such as the namespace of the ingress controller. [{ namespaceSelector: {} }, { ipBlock: { cidr: 0.0.0.0/0 } }, { ipBlock: { cidr: \"::/0\" } }] is everybody." (join " and " $leads)) }}{{ end -}}
{{- $reads := list -}}
{{- range $name := list "serviceMonitor" "podMonitor" "prometheusRule" -}}
{{- if (index $values $name).enabled }}{{ $reads = append $reads (printf "%s.enabled" $name) }}{{ end -}}
{{- end -}}
{{- range (include "tollgate.workloads" $ | fromYaml).workloads }}{{ if dig "keda" "enabled" false .values }}{{ $reads = append $reads "keda.enabled" }}{{ end }}{{ end -}}
{{- if and .enabled $reads (not .metricsFrom) }}{{ fail (printf "networkPolicy.metricsFrom must name the peers that may read metrics, such as the namespace of Prometheus, because of %s." (uniq $reads | join " and ")) }}{{ end -}}
{{- end -}}
{{- range $member := list "loadBalancerClass" "externalTrafficPolicy" -}}
{{- if and (index $values.gateway.service $member) (ne $values.gateway.service.type "LoadBalancer") }}{{ fail (printf "gateway.service.%s needs gateway.service.type=LoadBalancer." $member) }}{{ end -}}
{{- end -}}
{{- if and $values.caBundle.existingConfigMap $values.caBundle.existingSecret }}{{ fail "caBundle.existingConfigMap and caBundle.existingSecret are mutually exclusive." }}{{ end -}}
{{- include "tollgate.checkFile" (dict "root" . "name" "upstreams" "member" "baseUrl" "fake" "echo:" "what" "the built-in echo, which answers without a model") -}}
{{- include "tollgate.checkFile" (dict "root" . "name" "engines" "member" "type" "fake" "preview" "what" "the preview engine, which draws placeholders") -}}
{{- include "tollgate.checkEntries" (dict "root" . "kind" "Secret" "value" "files.existingSecret" "name" $values.files.existingSecret "keys" (list "access-key-id" "secret-access-key")) -}}
{{- include "tollgate.checkEntries" (dict "root" . "kind" "Secret" "value" "traces.headers.existingSecret" "name" $values.traces.headers.existingSecret "keys" (list $values.traces.headers.key)) -}}
{{- include "tollgate.checkEntries" (dict "root" . "kind" "Secret" "value" "dashboard.oidc.existingSecret" "name" $values.dashboard.oidc.existingSecret "keys" (list $values.dashboard.oidc.key)) -}}
{{- include "tollgate.checkEntries" (dict "root" . "kind" "Secret" "value" "ingress.tlsSecret" "name" $values.ingress.tlsSecret "keys" (list "tls.crt" "tls.key")) -}}
{{- range $name := list "proxyRoutes" "caBundle" -}}
{{- range $kind := list "ConfigMap" "Secret" -}}
{{- $value := printf "existing%s" $kind -}}
{{- include "tollgate.checkEntries" (dict "root" $ "kind" $kind "value" (printf "%s.%s" $name $value) "name" (index $values $name $value) "keys" (list (index $values $name).key)) -}}
{{- end -}}
{{- end -}}
{{- $names := list -}}
{{- range $values.workerPools -}}
{{- if has .name $names }}{{ fail (printf "workerPools has two pools with the name %s." .name) }}{{ end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- end -}}

{{/* Fails if the file of `name` has a fake, or a key file that is missing, also where the file is in an existing ConfigMap. Without access to the cluster an existing ConfigMap is not checked. */}}
{{- define "tollgate.checkFile" -}}
{{- $source := index .root.Values .name -}}
{{- $file := $source.file -}}
{{- $where := printf "%s.file" .name -}}
{{- with $source.existingConfigMap -}}
{{- include "tollgate.checkEntries" (dict "root" $.root "kind" "ConfigMap" "value" (printf "%s.existingConfigMap" $.name) "name" . "keys" (list $source.key)) -}}
{{- $found := lookup "v1" "ConfigMap" $.root.Release.Namespace . -}}
{{- if $found -}}
{{- $where = printf "The entry %s of the ConfigMap %s" $source.key . -}}
{{- $file = index ($found.data | default dict) $source.key | default (index ($found.binaryData | default dict) $source.key | default "" | b64dec) | fromYaml -}}
{{- if $file.Error }}{{ fail (printf "%s is not YAML: %s." $where $file.Error) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $entries := index ($file | default dict) .name -}}
{{- $entries = kindIs "slice" $entries | ternary $entries list -}}
{{- range $entries -}}
{{- if and (kindIs "map" .) (not $.root.Values.allowFakes) -}}
{{- if eq $.fake (index . $.member | toString) }}{{ fail (printf "%s names %s, %s; allowFakes: true permits it, for trials." $where (toString .name) $.what) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- include "tollgate.checkKeyFiles" (dict "root" .root "name" .name "where" $where "entries" $entries) -}}
{{- end -}}

{{/* Fails if an existing address or sealing key is not one. A missing Secret is not an error: the pods wait for it. */}}
{{- define "tollgate.checkSecret" -}}
{{- include "tollgate.checkEntries" (dict "root" .root "kind" "Secret" "value" (printf "%s.existingSecret" .value) "name" .secret.existingSecret "keys" (list .secret.key)) -}}
{{- $found := lookup "v1" "Secret" .root.Release.Namespace .secret.existingSecret -}}
{{- if $found -}}
{{- $entry := index $found.data .secret.key | b64dec | trim -}}
{{- if .schemes -}}
{{- $isOne := false -}}
{{- range .schemes }}{{ if hasPrefix . $entry }}{{ $isOne = true }}{{ end }}{{ end -}}
{{- if not $isOne }}{{ fail (printf "The entry %s of the Secret %s does not begin with any of %s: pods cannot share another kind of address." .secret.key .secret.existingSecret (join ", " .schemes)) }}{{ end -}}
{{- else -}}
{{- range splitList "\n" $entry }}{{ if and (trim .) (not (regexMatch "^[A-Za-z0-9+/_-]{43}=?$" (trim .))) }}{{ fail (printf "The entry %s of the Secret %s has a line that is not 32 bytes in base64; no pod would start." $.secret.key $.secret.existingSecret) }}{{ end }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Fails if an existing Secret or ConfigMap lacks one of `keys`, or has it empty. `value` names it in the values. */}}
{{- define "tollgate.checkEntries" -}}
{{- if .name -}}
{{- $found := lookup "v1" .kind .root.Release.Namespace .name -}}
{{- if $found -}}
{{- $entries := merge (dict) ($found.data | default dict) ($found.binaryData | default dict) -}}
{{- range .keys -}}
{{- $entry := index $entries . | default "" -}}
{{- if not (eq $.kind "Secret" | ternary (b64dec $entry) $entry | trim) }}{{ fail (printf "%s names the %s %s, which has no entry %s." $.value $.kind $.name .) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Fails if the file of `upstreams` or `engines` names an `apiKeyFile` that its `keysSecret` does not have. An absolute path is one of `extraVolumes`. */}}
{{- define "tollgate.checkKeyFiles" -}}
{{- $keysSecret := (index .root.Values .name).keysSecret -}}
{{- range .entries -}}
{{- $file := kindIs "map" . | ternary (dig "apiKeyFile" "" .) "" | toString -}}
{{- if and $file (not (contains "/" $file)) -}}
{{- if not $keysSecret }}{{ fail (printf "%s names the apiKeyFile %s, but %s.keysSecret is empty." $.where $file $.name) }}{{ end -}}
{{- include "tollgate.checkEntries" (dict "root" $.root "kind" "Secret" "value" (printf "%s.keysSecret" $.name) "name" $keysSecret "keys" (list $file)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Fails where the API server would refuse a pod for its variables, volumes and mounts: it takes each once, and a mount needs its volume. Takes `root` and `workload`. */}}
{{- define "tollgate.checkPod" -}}
{{- $name := .workload.name -}}
{{- $own := .workload.values -}}
{{- $volumes := concat (include "tollgate.volumes" . | fromYamlArray) ($own.extraVolumes | default list) -}}
{{- $mounts := concat (include "tollgate.mounts" . | fromYamlArray) ($own.extraVolumeMounts | default list) -}}
{{- $env := concat (include "tollgate.env" . | fromYamlArray) ($own.extraEnv | default list) -}}
{{- range $part := list (list "environment variable" "name" $env) (list "volume" "name" $volumes) (list "mount path" "mountPath" $mounts) -}}
{{- $seen := list -}}
{{- range index $part 2 -}}
{{- $one := index . (index $part 1) -}}
{{- if has $one $seen }}{{ fail (printf "Pods of %s would have the %s %v twice." $name (index $part 0) $one) }}{{ end -}}
{{- $seen = append $seen $one -}}
{{- end -}}
{{- end -}}
{{- $known := list -}}
{{- range $volumes }}{{ $known = append $known .name }}{{ end -}}
{{- range $mounts }}{{ if not (has .name $known) }}{{ fail (printf "A mount of %s names the volume %v, which is not in extraVolumes." $name .name) }}{{ end }}{{ end -}}
{{- end -}}

{{/* Every setting of src/config/config.ts. */}}
{{- define "tollgate.settings" -}}
[ROLE, HOST, PORT, OPS_HOST, OPS_PORT, PUBLIC_URL, TRUST_PROXY, DATA_DIR, STORE_URL, RESOURCES_URL, SEALING_KEY_FILE, DERIVED_KEYS_FILE, BRAND, UPSTREAMS, IMAGE_URLS, MODEL_ALIASES, CORS_ORIGINS, PLAN_LIMITS, PLAN_LEASES, BROKER_URL, FILES_URL, ENGINES, PROXY_ROUTES, DASHBOARD, DASHBOARD_KEY_MANAGEMENT, OIDC_ISSUER, OIDC_CLIENT_ID, OIDC_CLIENT_SECRET, OIDC_TENANT_CLAIM, OIDC_SCOPES, PLUGINS, WORKER_SLOTS, WORKER_KINDS, INPUT_TIMEOUT_SECONDS, BODY_MEMORY_MIB, EGRESS_ALLOW, WEBHOOK_DELAYS_SECONDS, WEBHOOK_TIMEOUT_SECONDS, TASK_LEASE_SECONDS, QUEUE_HOURS, RESULT_DAYS, EVENT_DAYS, USAGE_DAYS, TASK_DAYS, LOG_LEVEL, METRICS_TENANT, DRAIN_DELAY_SECONDS, SHUTDOWN_SECONDS]
{{- end -}}

{{/* Fails if a further variable is a setting. Takes the value that has it, and its name. */}}
{{- define "tollgate.checkSetting" -}}
{{- $name := last . -}}
{{- $settings := include "tollgate.settings" . | fromYamlArray -}}
{{- if or (has $name $settings) (has (trimSuffix "_FILE" $name) $settings) }}{{ fail (printf "%s has %s, a setting: give it in settings, or by the value that it follows from (docs/chart-values.md)." (first .) $name) }}{{ end -}}
{{- end -}}
