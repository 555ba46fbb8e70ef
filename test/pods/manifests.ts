/** Manifests of the cluster's administrator for the tenant, and those of the tenant. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { apiKey, codingPlan, mediaPlan } from '../backends/resources/manifests.ts'
import { GATE, IMAGE, TENANT } from './site.ts'

/** The tenant's namespace, which enforces the restricted Pod Security Standard. */
export const NAMESPACE = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: TENANT, labels: { 'pod-security.kubernetes.io/enforce': 'restricted' } } }

/** A ServiceAccount with Kubernetes' role `edit` in its namespace. */
export const BUYER = [
  { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'buyer', namespace: TENANT } },
  {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: 'RoleBinding',
    metadata: { name: 'buyer', namespace: TENANT },
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'edit' },
    subjects: [{ kind: 'ServiceAccount', name: 'buyer', namespace: TENANT }],
  },
]

export const PLANS = [
  mediaPlan('studio', { requestsPerMinute: 1_000_000 }, { allowance: '1000.00', maxConcurrentTasks: 8 }),
  codingPlan('coder', { requestsPerMinute: 1_000_000 }, { sessionWindow: { tokens: 1_000_000_000 }, weeklyWindow: { tokens: 1_000_000_000 }, maxConcurrentRequests: 100 }),
]
export const KEYS = [apiKey('media', 'studio', { secretName: 'media-key' }), apiKey('coding', 'coder', { secretName: 'coding-key' })]

/** The tenant's own program: a pod in which the Secrets of both keys are mounted, and which calls both products. */
export const PROGRAM = [
  { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'program', namespace: TENANT }, data: { 'tenant.mjs': readFileSync(join(import.meta.dirname, 'tenant.mjs'), 'utf8') } },
  {
    apiVersion: 'batch/v1',
    kind: 'Job',
    metadata: { name: 'program', namespace: TENANT },
    spec: {
      backoffLimit: 0,
      template: {
        spec: {
          restartPolicy: 'Never',
          securityContext: { runAsNonRoot: true, runAsUser: 1000, fsGroup: 1000, seccompProfile: { type: 'RuntimeDefault' } },
          containers: [
            {
              name: 'program',
              image: `${IMAGE}:1`,
              command: ['node', '/program/tenant.mjs', `http://tollgate-gateway.${GATE}.svc`, '/keys'],
              securityContext: { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: ['ALL'] } },
              volumeMounts: [
                { name: 'program', mountPath: '/program', readOnly: true },
                ...['media', 'coding'].map((name) => ({ name, mountPath: `/keys/${name}`, readOnly: true })),
              ],
            },
          ],
          volumes: [
            { name: 'program', configMap: { name: 'program' } },
            ...['media', 'coding'].map((name) => ({ name, secret: { secretName: `${name}-key`, defaultMode: 0o440 } })),
          ],
        },
      },
    },
  },
]

/** For `kubectl apply --filename -`. */
export function documents(objects: object[]): string {
  return JSON.stringify({ apiVersion: 'v1', kind: 'List', items: objects })
}
