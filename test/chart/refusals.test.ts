/** Values that the chart refuses, each with a sentence that says what to do. */
import t from 'tap'
import { missing } from '../servers/client.ts'
import { rendered } from './chart.ts'

if (!missing(t, ['helm'])) {
  const refusals: [string, string[], RegExp][] = [
    ['no address', ['--set', 'publicUrl='], /publicUrl must be the public address of the gateways/],
    ['no sealing key', ['--set', 'sealingKey.existingSecret='], /sealingKey.existingSecret must name a Secret with 32 random bytes/],
    ['no store', ['--set', 'store.existingSecret='], /processes cannot share SQLite\./],
    ['no broker', ['--set', 'broker.existingSecret='], /processes cannot share memory\./],
    ['KEDA without Kafka', ['--set', 'worker.keda.enabled=true'], /worker\.keda\.kafka\.bootstrapServers must be the brokers/],
    ['sqlite as a setting', ['--set', 'settings.STORE_URL=sqlite:/data/db'], /additional properties 'STORE_URL' not allowed/],
    ['sqlite as a variable', ['--set', 'env.STORE_URL=sqlite:/data/db'], /env has STORE_URL, a setting: give it in settings, or by the value that it follows from/],
    ['files on a disk', ['--set', 'files.url=disk:/data'], /files.url was "disk:\/data"; it must be gridfs: or s3:\/\/<bucket>/],
    ['no upstreams', ['--set', 'upstreams.file=null'], /upstreams.file or upstreams.existingConfigMap is required/],
    ['no engines', ['--set', 'engines.existingConfigMap='], /engines.file or engines.existingConfigMap is required/],
    ['both a file and a ConfigMap', ['--set', 'upstreams.existingConfigMap=mine'], /are mutually exclusive\./],
    ['routes of two sources', ['--set', 'proxyRoutes.existingConfigMap=mine,proxyRoutes.existingSecret=mine'], /proxyRoutes.file, proxyRoutes.existingConfigMap and proxyRoutes.existingSecret are mutually exclusive\./],
    ['more traces than requests', ['--set', 'traces.samplerArg=2'], /maximum: got 2, want 1/],
    ['a setting as a further variable', ['--set', 'gateway.extraEnv[0].name=STORE_URL'], /extraEnv of tollgate-gateway has STORE_URL, a setting/],
    ['a label of its own selectors', ['--set-json', 'worker.podLabels={"app.kubernetes.io/name":"mine"}'], /invalid propertyName 'app.kubernetes.io\/name'/],
    ['authorities of two sources', ['--set', 'caBundle.existingConfigMap=mine,caBundle.existingSecret=mine'], /caBundle.existingConfigMap and caBundle.existingSecret are mutually exclusive\./],
    ['a setting out of its bounds', ['--set', 'settings.RESULT_DAYS=-4'], /RESULT_DAYS': minimum: got -4, want 0.0001/],
    ['a setting that is no number', ['--set-string', 'settings.RESULT_DAYS=-4'], /RESULT_DAYS': '-4' does not match pattern/],
    ['a setting of other words', ['--set', 'settings.LOG_LEVEL=loud'], /LOG_LEVEL': value must be one of 'trace', 'debug'/],
    ...['TRUST_PROXY', 'MODEL_ALIASES', 'CORS_ORIGINS', 'BODY_MEMORY_MIB', 'EGRESS_ALLOW', 'WEBHOOK_DELAYS_SECONDS', 'USAGE_DAYS'].map((name): [string, string[], RegExp] => [
      `${name} of other signs`,
      ['--set-string', `settings.${name}=!!`],
      new RegExp(`${name}': '!!' does not match pattern`),
    ]),
    ['S3 without credentials', ['--set', 'files.url=s3://results'], /files\.existingSecret must name a Secret with the credentials of files\.url/],
    ['S3 with credentials of the gateways alone', ['--set', 'files.url=s3://results,gateway.extraEnv[0].name=AWS_ACCESS_KEY_ID'], /files\.existingSecret must name .*: tollgate-worker-all has none\./],
    ['a budget as large as its Deployment', ['--set', 'dispatcher.podDisruptionBudget.minAvailable=2'], /podDisruptionBudget\.minAvailable of tollgate-dispatcher was 2; it must be less than replicas, which is 2/],
    ['a provider in the clear', ['--set', 'dashboard.enabled=true,dashboard.oidc.issuer=http://id.example.com,dashboard.oidc.clientId=x'], /dashboard\.oidc\.issuer was "http:\/\/id\.example\.com"; it must be an https address/],
    ['a misspelled member of an upstream', ['--set', 'upstreams.file.upstreams[0].wires=both'], /upstreams\/0': additional properties 'wires' not allowed/],
    ['a wrong wire of an upstream', ['--set', 'upstreams.file.upstreams[0].wire=soap'], /wire': value must be one of 'chat', 'responses', 'messages', 'both'/],
    ['an engine without a type', ['--set-json', 'engines={"existingConfigMap":"","file":{"engines":[{"name":"draw"}],"routes":[]}}'], /engines\/0': missing property 'type'/],
    ['a pass-through route without a prefix', ['--set-json', 'proxyRoutes.file={"routes":[{"upstream":"http://search","product":"Coding"}]}'], /routes\/0': missing property 'prefix'/],
    ['a key file of no Secret', ['--set', 'upstreams.keysSecret='], /upstreams\.file names the apiKeyFile main, but upstreams\.keysSecret is empty\./],
    ['the echo', ['--set', 'upstreams.file.upstreams[0].baseUrl=echo:'], /upstreams.file names \S+ the built-in echo, which answers without a model/],
    ['the preview engine', ['--set-json', 'engines={"existingConfigMap":"","file":{"engines":[{"name":"draw","type":"preview"}],"routes":[]}}'], /engines.file names draw, the preview engine/],
    ['a dashboard without a provider', ['--set', 'dashboard.enabled=true'], /dashboard.oidc.issuer and dashboard.oidc.clientId are required/],
    ['a dashboard in the clear', ['--set', 'publicUrl=http://api.example.com,dashboard.enabled=true,dashboard.oidc.issuer=https://id.example.com,dashboard.oidc.clientId=x'], /publicUrl must be an https address when dashboard.enabled is true/],
    ['managed keys without a dashboard', ['--set', 'dashboard.keyManagement=true'], /dashboard.keyManagement needs dashboard.enabled\./],
    ['a label of two values', ['--set-json', 'commonLabels={"example.com/team":"a"}', '--set-json', 'worker.podLabels={"example.com/team":"b"}'], /commonLabels and podLabels of tollgate-worker-all both set the label example\.com\/team\./],
    ['a common label of its own and of a monitor', ['--set-json', 'commonLabels={"release":"a"}', '--set-json', 'serviceMonitor.labels={"release":"b"}'], /commonLabels and serviceMonitor\.labels both set the label release\./],
    ['alerts on metrics that nobody may read', ['--set', 'prometheusRule.enabled=true'], /networkPolicy\.metricsFrom must name the peers .* because of prometheusRule\.enabled\./],
    ['a ServiceMonitor beside a PodMonitor', ['--set', 'serviceMonitor.enabled=true,podMonitor.enabled=true,networkPolicy.enabled=false'], /serviceMonitor\.enabled and podMonitor\.enabled are mutually exclusive: Prometheus would read every pod twice\./],
    ['a budget of two numbers', ['--set', 'worker.podDisruptionBudget.minAvailable=1,worker.podDisruptionBudget.maxUnavailable=1'], /podDisruptionBudget of tollgate-worker-all has minAvailable and maxUnavailable, which are mutually exclusive\./],
    ['a misspelled number of a probe', ['--set', 'worker.probes.readiness.periodSecond=1'], /additional properties 'periodSecond' not allowed/],
    ['KEDA on metrics that nobody may read', ['--set', 'worker.keda.enabled=true,worker.keda.kafka.bootstrapServers=kafka:9092'], /networkPolicy\.metricsFrom must name the peers .* because of keda\.enabled\./],
    ['a common label of its own selectors', ['--set-json', 'commonLabels={"app.kubernetes.io/name":"mine"}'], /invalid propertyName 'app.kubernetes.io\/name'/],
    ['a traffic policy of no load balancer', ['--set', 'gateway.service.externalTrafficPolicy=Local'], /gateway\.service\.externalTrafficPolicy needs gateway\.service\.type=LoadBalancer\./],
    ['two pools of a name', ['--set-json', 'workerPools=[{"name":"a"},{"name":"a"}]'], /workerPools has two pools with the name a\./],
    ['a kind that nobody makes', ['--set-json', 'workerPools=[{"name":"a","kinds":["poem"]}]'], /value must be one of 'image', 'video', 'music'/],
    ['no worker', ['--set', 'workerPools=null'], /workerPools must have a pool: without workers no task runs\./],
    ['an autoscaler whose least is above its most', ['--set', 'gateway.autoscaling.enabled=true,gateway.autoscaling.minReplicas=20'], /gateway\.autoscaling\.minReplicas was 20; it must be at most maxReplicas, which is 10\./],
    ['a pool whose least is above its most', ['--set-json', 'workerPools=[{"name":"film","keda":{"enabled":true,"maxReplicas":1,"kafka":{"bootstrapServers":"kafka:9092"}}}]'], /keda\.minReplicas of the pool film was 2; it must be at most maxReplicas, which is 1\./],
    ['a variable of two values', ['--set', 'env.SOME=a,worker.extraEnv[0].name=SOME'], /Pods of tollgate-worker-all would have the environment variable SOME twice\./],
    ['a variable of two values, of which one has its own name', ['--set', 'env.OTEL_EXPORTER_OTLP_HEADERS=a=b,traces.endpoint=http://otlp:4318,traces.headers.existingSecret=otlp'], /Pods of tollgate-gateway would have the environment variable OTEL_EXPORTER_OTLP_HEADERS twice\./],
    ['certificate authorities of two values', ['--set', 'env.NODE_EXTRA_CA_CERTS=/ca.crt,caBundle.existingConfigMap=mine,verify.schedule=@daily'], /env sets NODE_EXTRA_CA_CERTS, which follows from another value\./],
    ['a volume with the name of another', ['--set', 'controller.extraVolumes[0].name=store'], /Pods of tollgate-controller would have the volume store twice\./],
    ['two mounts of a path', ['--set', 'worker.extraVolumes[0].name=big,worker.extraVolumeMounts[0].name=big,worker.extraVolumeMounts[0].mountPath=/tmp'], /Pods of tollgate-worker-all would have the mount path \/tmp twice\./],
    ['a mount without a volume', ['--set', 'gateway.extraVolumeMounts[0].name=none,gateway.extraVolumeMounts[0].mountPath=/none'], /A mount of tollgate-gateway names the volume none, which is not in extraVolumes\./],
    ['a host that is no name', ['--set', 'ingress.hosts[0]=https://api.example.com'], /ingress\/hosts\/0': 'https:\/\/api.example.com' does not match pattern/],
    ['a schedule that is none', ['--set', 'verify.schedule=nightly'], /verify\/schedule': 'nightly' does not match pattern/],
    ['a value that nobody knows', ['--set', 'gateway.replica=3'], /additional properties 'replica' not allowed/],
    ['an Ingress that nothing may pass', ['--set', 'ingress.enabled=true,gateway.service.type=LoadBalancer'], /networkPolicy\.ingressFrom must name the peers that may call the gateways, because of ingress\.enabled and gateway\.service\.type=LoadBalancer: .* is everybody\./],
    ['a ServiceMonitor for a Prometheus that reaches no pod', ['--set', 'serviceMonitor.enabled=true'], /networkPolicy\.metricsFrom must name the peers that may read metrics, .* because of serviceMonitor\.enabled\./],
    ['a route without a Gateway', ['--set', 'httpRoute.enabled=true,networkPolicy.enabled=false'], /httpRoute.parentRefs must name the Gateway/],
  ]
  for (const [what, more, sentence] of refusals) {
    t.test(`it refuses ${what}`, async (t) => {
      await t.rejects(rendered('required', more), { message: sentence })
    })
  }

  t.test('it takes a budget as large as its Deployment that is off', async (t) => {
    await t.resolves(rendered('required', ['--set', 'dispatcher.podDisruptionBudget.enabled=false,dispatcher.podDisruptionBudget.minAvailable=2']))
  })
}
