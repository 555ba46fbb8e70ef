{{/* What is refused, each with one sentence: what the program would refuse at its start, and what would sell something that is not real. */}}
{{- define "tollgate.refusals" -}}
{{- $values := .Values -}}
{{- if not $values.publicUrl }}{{ fail "publicUrl must say how the world reaches the gateways, such as https://api.example.com." }}{{ end -}}
{{- if not $values.sealingKey.existingSecret }}{{ fail "sealingKey.existingSecret must name a Secret with 32 random bytes in base64: it seals the API keys, and is never made for you because whoever loses it loses them." }}{{ end -}}
{{- if not $values.store.existingSecret }}{{ fail "store.existingSecret must name a Secret whose entry holds a mongodb:// address: processes cannot share SQLite." }}{{ end -}}
{{- if not $values.broker.existingSecret }}{{ fail "broker.existingSecret must name a Secret whose entry holds a kafka:// address: processes cannot share memory." }}{{ end -}}
{{- if not (or (eq $values.files.url "gridfs:") (hasPrefix "s3://" $values.files.url)) }}{{ fail (printf "files.url was %q; it may be gridfs: or s3://<bucket>, because pods share no disk." $values.files.url) }}{{ end -}}
{{- if and $values.files.existingSecret (not (hasPrefix "s3://" $values.files.url)) }}{{ fail "files.existingSecret holds the credentials of s3://<bucket>, which files.url does not name." }}{{ end -}}
{{- include "tollgate.refuseSecret" (dict "root" . "value" "sealingKey" "secret" $values.sealingKey "schemes" list) -}}
{{- include "tollgate.refuseSecret" (dict "root" . "value" "store" "secret" $values.store "schemes" (list "mongodb://" "mongodb+srv://")) -}}
{{- include "tollgate.refuseSecret" (dict "root" . "value" "broker" "secret" $values.broker "schemes" (list "kafka://")) -}}
{{- range $name := list "upstreams" "engines" -}}
{{- $source := index $values $name -}}
{{- if and $source.file $source.existingConfigMap }}{{ fail (printf "%s.file and %s.existingConfigMap exclude each other." $name $name) }}{{ end -}}
{{- if not (or $source.file $source.existingConfigMap) }}{{ fail (printf "%s.file or %s.existingConfigMap must name the real ones: nothing that is made up is served to customers." $name $name) }}{{ end -}}
{{- end -}}
{{- if not $values.allowFakes -}}
{{- include "tollgate.refuseFakes" (dict "root" . "name" "upstreams" "member" "baseUrl" "fake" "echo:" "what" "the built-in echo, which answers without a model") -}}
{{- include "tollgate.refuseFakes" (dict "root" . "name" "engines" "member" "type" "fake" "preview" "what" "the preview engine, which draws placeholders") -}}
{{- end -}}
{{- $names := list -}}
{{- range $values.workerPools -}}
{{- if has .name $names }}{{ fail (printf "workerPools has two pools named %s." .name) }}{{ end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- end -}}

{{/* Looks into the file of `name`, also where it lies in a ConfigMap that is there already. A file that nobody can read might name a fake. */}}
{{- define "tollgate.refuseFakes" -}}
{{- $source := index .root.Values .name -}}
{{- $file := $source.file -}}
{{- $where := printf "%s.file" .name -}}
{{- with $source.existingConfigMap -}}
{{- $found := lookup "v1" "ConfigMap" $.root.Release.Namespace . -}}
{{- if $found -}}
{{- $where = printf "The entry %s of the ConfigMap %s" $source.key . -}}
{{- $entry := index ($found.data | default dict) $source.key | default (index ($found.binaryData | default dict) $source.key | default "" | b64dec) -}}
{{- if not (trim $entry) }}{{ fail (printf "%s.existingConfigMap names the ConfigMap %s, which has no entry %s." $.name . $source.key) }}{{ end -}}
{{- $file = fromYaml $entry -}}
{{- if $file.Error }}{{ fail (printf "%s is not YAML: %s." $where $file.Error) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $entries := index ($file | default dict) .name -}}
{{- range kindIs "slice" $entries | ternary $entries list -}}
{{- if kindIs "map" . -}}
{{- if eq $.fake (index . $.member | toString) }}{{ fail (printf "%s names %s, %s; allowFakes: true installs it nonetheless, for trying out." $where (toString .name) $.what) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Looks into a Secret that is there already; one that comes later is waited for by the pods. */}}
{{- define "tollgate.refuseSecret" -}}
{{- $found := lookup "v1" "Secret" .root.Release.Namespace .secret.existingSecret -}}
{{- if $found -}}
{{- $entry := index ($found.data | default dict) .secret.key | default "" | b64dec | trim -}}
{{- if not $entry }}{{ fail (printf "%s.existingSecret names the Secret %s, which has no entry %s." .value .secret.existingSecret .secret.key) }}{{ end -}}
{{- if .schemes -}}
{{- $isOne := false -}}
{{- range .schemes }}{{ if hasPrefix . $entry }}{{ $isOne = true }}{{ end }}{{ end -}}
{{- if not $isOne }}{{ fail (printf "The entry %s of the Secret %s begins with none of %s: pods share nothing else." .secret.key .secret.existingSecret (join ", " .schemes)) }}{{ end -}}
{{- else -}}
{{- range splitList "\n" $entry }}{{ if and (trim .) (not (regexMatch "^[A-Za-z0-9+/_-]{43}=?$" (trim .))) }}{{ fail (printf "The entry %s of the Secret %s has a line that is not 32 bytes in base64: no pod starts with it." $.secret.key $.secret.existingSecret) }}{{ end }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
