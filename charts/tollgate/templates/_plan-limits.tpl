{{/* CEL validations for one entry of planLimits.limits. Admission runs after the defaults of the CRDs are filled in, so most fields are present. */}}
{{- define "tollgate.planValidations" -}}
{{- $media := .media | default dict -}}
{{- $coding := .coding | default dict -}}
{{- $rules := list -}}
{{- if hasKey . "products" -}}
{{- $rules = append $rules (list (printf "object.spec.product in %s" (toJson .products)) (printf "product may be %s" (join " or " .products | default "none"))) -}}
{{- end -}}
{{- range $rule := list
  (list . "requestsPerMinute" "" "requestsPerMinute")
  (list . "maxKeys" "" "keyPolicy.maxKeys")
  (list $media "maxConcurrentTasks" "media" "media.maxConcurrentTasks")
  (list $media "maxQueuedTasks" "media" "media.maxQueuedTasks")
  (list $coding "maxSessionTokens" "coding" "coding.sessionWindow.tokens")
  (list $coding "maxWeeklyTokens" "coding" "coding.weeklyWindow.tokens")
  (list $coding "maxConcurrentRequests" "coding" "coding.maxConcurrentRequests") -}}
{{- $max := index (index $rule 0) (index $rule 1) -}}
{{- if hasKey (index $rule 0) (index $rule 1) -}}
{{- $guard := ternary "" (printf "!has(object.spec.%s) || " (index $rule 2)) (eq (index $rule 2) "") -}}
{{- $rules = append $rules (list (printf "%sobject.spec.%s <= %d" $guard (index $rule 3) (int64 $max)) (printf "%s may be at most %d" (index $rule 3) (int64 $max))) -}}
{{- end -}}
{{- end -}}
{{- /* The sum of a namespace is beyond CEL, which sees one Plan: alone it must not exceed the sum. */ -}}
{{- range $limit := list (list "maxAllowance" "media.allowance may be at most %s") (list "maxAllowanceOfNamespace" "media.allowance may be at most %s: the plans of a namespace may grant that together, removed ones included until their period ends") -}}
{{- with get $media (index $limit 0) -}}
{{- $rules = append $rules (list (printf "!has(object.spec.media) || quantity(object.spec.media.allowance).compareTo(quantity('%s')) <= 0" .) (printf (index $limit 1) .)) -}}
{{- end -}}
{{- end -}}
{{- if or (hasKey $media "maxAllowance") (hasKey $media "maxAllowanceOfNamespace") -}}
{{- $days := int (get $media "minPeriodDays" | default 28) -}}
{{- $rules = append $rules (list (printf "!has(object.spec.media) || (has(object.spec.media.periodMonths) ? object.spec.media.periodMonths * 28 : has(object.spec.media.periodDays) ? object.spec.media.periodDays : 30) >= %d" $days) (printf "media.periodDays must be at least %d" $days)) -}}
{{- end -}}
{{- if hasKey $coding "maxSessionTokens" -}}
{{- $seconds := int (get $coding "minSessionSeconds" | default 18000) -}}
{{- $rules = append $rules (list (printf "!has(object.spec.coding) || object.spec.coding.sessionWindow.durationSeconds >= %d" $seconds) (printf "coding.sessionWindow.durationSeconds must be at least %d" $seconds)) -}}
{{- end -}}
{{- $isBounded := or (hasKey $coding "maxSessionTokens") (hasKey $coding "maxWeeklyTokens") -}}
{{- $weight := ternary (get $coding "minWeight") (ternary 1000 0 $isBounded) (hasKey $coding "minWeight") | int -}}
{{- if gt $weight 0 -}}
{{- range list "input" "cachedInput" "output" -}}
{{- $rules = append $rules (list (printf "!has(object.spec.coding) || object.spec.coding.weights.%s >= %d" . $weight) (printf "coding.weights.%s must be at least %d" . $weight)) -}}
{{- end -}}
{{- end -}}
{{- range $rules }}
- expression: {{ index . 0 | quote }}
  message: {{ printf "Not allowed in this namespace: %s." (index . 1) | quote }}
  reason: Forbidden
{{- else }}
- expression: "true"
{{- end }}
{{- end -}}
