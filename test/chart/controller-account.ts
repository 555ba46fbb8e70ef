/** The controller's account on a real API server, with the rights that the chart gives it, of which a test may take one. */
import type { Test } from 'tap'
import { eventually } from '../flows/eventually.ts'
import { openOperator, type Operator } from '../plugins/operator.ts'
import { openApi, type Answered, type Api } from '../servers/kube/api.ts'
import { openProxy, type Proxy } from '../servers/kube/proxy.ts'
import { objects } from './chart.ts'

const ADMISSION = '/apis/admissionregistration.k8s.io/v1'
const RBAC = '/apis/rbac.authorization.k8s.io/v1/namespaces'

type Rule = { apiGroups: string[]; resources: string[]; resourceNames?: string[]; verbs: string[] }

/** The same rights with a rule for each, so that any one can be left out: several verbs and resources may share a rule. */
function singly(rules: Rule[]): Rule[] {
  return rules.flatMap((rule) => rule.resources.flatMap((resource) => rule.verbs.map((verb) => ({ ...rule, resources: [resource], verbs: [verb] }))))
}

const named = ({ resources, verbs }: Rule) => `${verbs[0]} ${resources[0]}`

export function rightsOf(rules: Rule[]): string[] {
  return [...new Set(singly(rules).map(named))].sort()
}

export type Account = {
  operator: Operator
  /** Requests with the controller's own token. */
  own: Api
  proxy: Proxy
  url: string
  rights: string[]
  /** Writes the Roles of the namespace `acme`, without one right where one is named. Resolves once the API server judges by them. */
  grant(without: string | null): Promise<void>
  /** What the API server says to a request for which the account lacks the right. */
  refusal(right: string): string
}

const isOurs = ({ metadata }: Answered) => /-(controller|controller-secrets|lease)$/.test(metadata.name)

/** Gives an account of the operator's namespaces what the chart gives its controller, and a proxy that asks as that account. */
export async function openAccount(t: Test, kubeconfig: string): Promise<Account> {
  const operator = await openOperator(t, kubeconfig)
  const release = operator.namespace('acme')
  const namespaces = (['acme', 'globex', 'other'] as const).map((name) => operator.namespace(name))
  const all = await objects('required', ['--namespace', release, '--set', `namespaces={${namespaces.join(',')}}`, '--set', 'crds.enabled=false,controller.secretPolicy=Always'])
  for (const [kind, plural] of [['Role', 'roles'], ['RoleBinding', 'rolebindings']] as const) {
    for (const one of all.filter((object) => object.kind === kind && isOurs(object))) {
      await done(operator.api, `${RBAC}/${one.metadata.namespace}/${plural}/${one.metadata.name}`, one)
    }
  }
  const policies = [['ValidatingAdmissionPolicy', 'validatingadmissionpolicies'], ['ValidatingAdmissionPolicyBinding', 'validatingadmissionpolicybindings']] as const
  for (const [kind, plural] of policies) {
    const one = all.find((object) => object.kind === kind)
    const path = `${ADMISSION}/${plural}/${one.metadata.name}`
    await done(operator.api, path, one)
    t.teardown(() => operator.api.request('DELETE', path))
  }
  const account = `/api/v1/namespaces/${release}/serviceaccounts/tollgate-controller`
  await done(operator.api, account, all.find(({ kind, metadata }) => kind === 'ServiceAccount' && metadata.name === 'tollgate-controller'))
  const { body } = await operator.api.request('POST', `${account}/token`, { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: {} })
  const { token } = body.status
  const own = await openApi(kubeconfig, token)
  t.teardown(() => own.close())
  const proxy = await openProxy(t, { ...operator.api, token })
  const { env } = all.find(({ kind, metadata }) => kind === 'Deployment' && metadata.name === 'tollgate-controller').spec.template.spec.containers[0]
  const { value } = env.find(({ name }: Answered) => name === 'RESOURCES_URL')
  const roles = all.filter((object) => object.kind === 'Role' && object.metadata.namespace === release && isOurs(object))
  const rules: Rule[] = singly(roles.flatMap((role) => role.rules))
  return {
    operator,
    proxy,
    own,
    url: `${value}&kubeconfig=${proxy.kubeconfig}&leaseNamespace=${release}`,
    rights: rightsOf(rules),
    async grant(without) {
      for (const role of roles) {
        await done(operator.api, `${RBAC}/${release}/roles/${role.metadata.name}`, { ...role, rules: singly(role.rules).filter((rule) => named(rule) !== without) })
      }
      // The authorizer learns of a Role by a watch, as everybody does.
      await eventually(without === null ? 'all rights to be there' : `all rights but ${without} to be there`, async () => {
        const judged = await Promise.all(rules.map(async (rule) => (await isGranted(operator.api, release, rule)) === (named(rule) !== without)))
        return judged.every(Boolean) ? true : null
      })
    },
    refusal(right) {
      const { apiGroups, resources, verbs } = rules.find((rule) => named(rule) === right) as Rule
      return `User "system:serviceaccount:${release}:tollgate-controller" cannot ${verbs[0]} resource "${resources[0]}" in API group "${apiGroups[0]}" in the namespace "${release}"`
    },
  }
}

async function isGranted({ request }: Api, namespace: string, { apiGroups: [group], resources: [of = ''], resourceNames: [name] = [], verbs: [verb] }: Rule): Promise<boolean> {
  const [resource, subresource] = of.split('/')
  const spec = { user: `system:serviceaccount:${namespace}:tollgate-controller`, resourceAttributes: { verb, group, resource, subresource, namespace, name } }
  const { body } = await request('POST', '/apis/authorization.k8s.io/v1/subjectaccessreviews', { apiVersion: 'authorization.k8s.io/v1', kind: 'SubjectAccessReview', spec })
  return body.status.allowed
}

async function done({ apply }: Api, path: string, object: Answered): Promise<void> {
  const { status, body } = await apply(path, object)
  if (status !== 200 && status !== 201) throw new Error(`${path} was answered ${status}: ${body.message}`)
}
