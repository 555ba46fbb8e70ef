/** The official conformance suite of MCP over the endpoint. `npm run servers mcp-conformance` installs it. */
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import t from 'tap'
import mcp from '../../plugins/mcp/mcp.ts'
import { run } from '../flows/run.ts'
import { need } from '../servers/client.ts'
import { folderFor } from '../temporary-folder.ts'
import { openStudio } from './studio.ts'

/** The suite calls tools of its own test server by name. Ours that do the same take their place. */
const STAND_INS: Record<string, [name: string, args: object]> = {
  greet: ['get_usage', {}],
  slow_compute: ['generate_image', { prompt: 'a lighthouse' }],
  failing_job: ['upscale', { media_url: 'data:image/png;base64,bm8gcGljdHVyZQ==' }],
  test_simple_text: ['get_usage', {}],
  test_image_content: ['generate_image', { prompt: 'a lighthouse', wait_seconds: 45 }],
  test_error_handling: ['get_task', { task_id: 'nope' }],
}

async function standIn(request: FastifyRequest): Promise<void> {
  const { method, params } = (request.body ?? {}) as { method?: string; params?: { name: string; arguments: object } }
  const tool = method === 'tools/call' ? STAND_INS[params?.name ?? ''] : undefined
  if (!params || !tool) return
  if (request.headers['mcp-name'] === params.name) request.raw.headers['mcp-name'] = tool[0]
  ;[params.name, params.arguments] = tool
}

const NO_PROMPTS = 'there are no prompts'
const NO_INPUT = 'no tool asks its client for input: everything stands in the arguments'
const OWN_TOOL = 'needs a tool of the suite for what no tool of ours does'
const OWN_RESOURCE = 'reads a resource of the suite; resources of tasks are in test/plugins/mcp.test.ts'
const NO_SUBSCRIPTIONS = 'resources take no subscriptions: there are no sessions'
const NO_LOGGING = 'there are no log messages: sessions would be needed, and 2026-07-28 removed logging/setLevel'

/** Scenarios that do not apply, and single checks of others as `scenario/check`, each with its reason. */
const EXCUSED: Record<string, string> = {
  'completion-complete': NO_PROMPTS,
  'prompts-list': NO_PROMPTS,
  'prompts-get-simple': NO_PROMPTS,
  'prompts-get-with-args': NO_PROMPTS,
  'prompts-get-embedded-resource': NO_PROMPTS,
  'prompts-get-with-image': NO_PROMPTS,
  'caching/sep-2549-prompts-list-caching-hints': NO_PROMPTS,
  'resources-read-text': OWN_RESOURCE,
  'resources-read-binary': OWN_RESOURCE,
  'resources-templates-read': OWN_RESOURCE,
  'resources-subscribe': NO_SUBSCRIPTIONS,
  'resources-unsubscribe': NO_SUBSCRIPTIONS,
  'logging-set-level': NO_LOGGING,
  'tools-call-with-logging': NO_LOGGING,
  'tools-call-audio': 'the scripted engine makes images; audio content is in test/plugins/mcp.test.ts',
  'tools-call-embedded-resource': 'media come as content and as links, never embedded',
  'tools-call-mixed-content': 'media come as content and as links, never embedded',
  'tools-call-with-progress': 'expects three notifications of a tool of the suite; progress is in test/plugins/mcp.test.ts',
  'tools-call-sampling': NO_INPUT,
  'tools-call-elicitation': NO_INPUT,
  'elicitation-sep1034-defaults': NO_INPUT,
  'elicitation-sep1330-enums': NO_INPUT,
  'input-required-result-basic-elicitation': NO_INPUT,
  'input-required-result-basic-sampling': NO_INPUT,
  'input-required-result-basic-list-roots': NO_INPUT,
  'input-required-result-request-state': NO_INPUT,
  'input-required-result-multiple-input-requests': NO_INPUT,
  'input-required-result-multi-round': NO_INPUT,
  'input-required-result-missing-input-response': NO_INPUT,
  'input-required-result-non-tool-request': NO_INPUT,
  'input-required-result-result-type': NO_INPUT,
  'input-required-result-tampered-state': NO_INPUT,
  'input-required-result-capability-check': NO_INPUT,
  'input-required-result-ignore-extra-params': NO_INPUT,
  'server-stateless/sep-2575-server-rejects-undeclared-capability': NO_INPUT,
  'server-stateless/sep-2575-missing-capability-http-400': NO_INPUT,
  'server-stateless/sep-2575-http-server-no-independent-requests-on-stream': NO_INPUT,
  'server-stateless/sep-2575-server-no-log-without-loglevel': NO_LOGGING,
  'tasks-mrtr-input': NO_INPUT,
  'tasks-mrtr-composition': NO_INPUT,
  'tasks-dispatch-and-envelope/tasks-result-type-complete-on-non-task-responses': NO_INPUT,
  'tasks-lifecycle/sep-2663-tasks-get-status-failed': 'no accepted tool call ends in an error of JSON-RPC',
  'tasks-required-task-error': 'no tool requires the extension',
  'tasks-request-headers/tasks-headers-tolerate-mcp-method-on-tools-call': 'expects the text of a tool of the suite',
  'json-schema-2020-12': OWN_TOOL,
  'http-custom-header-server-validation': 'no argument is mirrored in a header',
  'server-sse-multiple-streams': 'of 2025-11-25: there are no sessions',
  'server-sse-polling': 'there are no sessions, and a response is not resumed: get_task is',
}

type Check = { id: string; status: string; errorMessage?: string }

const REVISIONS = ['2026-07-28', '2025-11-25']

t.test('every scenario of the conformance suite that applies passes, of both revisions and the Tasks extension; those excused still fail', { timeout: 300_000 }, async (t) => {
  const suite = need(t, 'mcp-conformance')
  if (suite === null) return
  const studio = await openStudio(t, {
    async also(app: FastifyInstance) {
      app.addHook('preHandler', standIn)
      await app.register(mcp)
    },
  })
  // The suite has no option for headers.
  studio.app.server.prependListener('request', ({ headers }) => (headers.authorization ??= `Bearer ${studio.raw}`))
  const url = `${await studio.app.listen({ port: 0, host: '127.0.0.1' })}/mcp`
  const folder = await folderFor(t)
  const failed = new Set<string>()
  let passed = 0
  for (const revision of REVISIONS) {
    const output = join(folder, revision)
    await run(process.execPath, [suite, 'server', '--url', url, '--requirements', revision, '--output-dir', output], { cwd: folder, env: {} })
    for (const name of await readdir(output)) {
      const scenario = name.replace(/^server-/, '').replace(/-\d{4}-\d\d-\d\dT[\d-]+Z$/, '')
      const checks: Check[] = JSON.parse(await readFile(join(output, name, 'checks.json'), 'utf8'))
      for (const { id, status, errorMessage } of checks) {
        if (status === 'SUCCESS') passed++
        if (['SUCCESS', 'INFO', 'SKIPPED'].includes(status)) continue
        const excuse = [scenario, `${scenario}/${id}`].find((excused) => excused in EXCUSED)
        if (excuse) failed.add(excuse)
        else t.fail(`${revision} ${scenario}/${id}: ${errorMessage ?? status}`)
      }
    }
  }
  t.comment(`${passed} checks passed, ${failed.size} scenarios or checks excused`)
  t.ok(passed > 100, 'the suite ran')
  t.same(Object.keys(EXCUSED).filter((excused) => !failed.has(excused)), [], 'what passes needs no excuse')
})
