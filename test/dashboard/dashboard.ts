/** Test fixture: the program with the demo tenant and another one, and a real browser over its dashboard. */
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { AxeBuilder } from '@axe-core/playwright'
import { chromium, type Browser, type BrowserContext, type BrowserContextOptions, type Page } from 'playwright-core'
import type { Test } from 'tap'
import { REPOSITORY, startProcess, type Process } from '../flows/program.ts'
import { eventually } from '../flows/eventually.ts'
import { buildPage } from './built.ts'

export type Program = {
  /** The running process; another one after `restart`. */
  process: Process
  /** The folder of the manifests, to change them as an operator does. */
  plans: string
  /** Stops the program gracefully and starts it on the same data and port. */
  restart(): Promise<void>
}

export type Dashboard = Program & { browser: Browser }

/** Of every step: a machine that runs all suites beside each other is slow. */
const WAIT_MS = 120_000

type PageOptions = BrowserContextOptions & {
  /** Where the test begins, below `/dashboard`. */
  path?: string
}

/** A browser of its own: nothing is shared with the others. Nothing moves in it: without a graphics card, animations shown while something waits would cost as much as the test. */
export async function openContext({ browser }: Dashboard, options: BrowserContextOptions = {}): Promise<BrowserContext> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, locale: 'en-US', reducedMotion: 'reduce', ...options })
  context.setDefaultTimeout(WAIT_MS)
  return context
}

/** A test in a signed-in page of a browser of its own (a context). It fails for what the browser must never do. */
export async function inPage(t: Test, dashboard: Dashboard, name: string, { path = '/', ...options }: PageOptions, body: (page: Page, t: Test) => Promise<void>): Promise<void> {
  await t.test(name, async (t) => {
    const context = await openContext(dashboard, options)
    try {
      const page = await context.newPage()
      const faults = watch(page, new URL(dashboard.process.url).origin)
      await signIn(page, dashboard)
      if (path !== '/') await page.goto(`${dashboard.process.url}/dashboard${path}`)
      await page.locator('main h1').waitFor()
      await body(page, t)
      t.same(faults, [], 'no request to elsewhere, no script of others, no violation of the policy, no uncaught error')
    } finally {
      await context.close()
    }
  })
}

function watch(page: Page, origin: string): string[] {
  const faults: string[] = []
  page.on('request', (request) => {
    if (!request.url().startsWith(`${origin}/`) && !/^(data|blob):/.test(request.url())) faults.push(`a request to ${request.url()}`)
  })
  page.on('pageerror', (error) => faults.push(`an uncaught error: ${error.message}`))
  page.on('dialog', (dialog) => {
    faults.push(`a script ran: ${dialog.message()}`)
    void dialog.dismiss()
  })
  page.on('console', (message) => {
    if (/Content Security Policy|Refused to/i.test(message.text())) faults.push(message.text())
  })
  return faults
}

/** Opens the link that is valid now. */
export async function signIn(page: Page, dashboard: Dashboard): Promise<void> {
  await page.goto(signInLink(dashboard.process))
  await page.waitForURL('**/dashboard/')
}

/** The one-time link that is valid now: the last one that the program has printed. */
export function signInLink({ log }: Process): string {
  const links = log.flatMap((line) => line.match(/http:\/\/[^"\s]+\/dashboard\/sign-in\?token=[\w-]+/g) ?? [])
  return links.at(-1) ?? ''
}

/** The violations of WCAG and good practice that axe finds on the page as it is now. */
export async function violations(page: Page): Promise<string[]> {
  const found = await new AxeBuilder({ page }).analyze()
  return found.violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 120)).join(' | ')}`)
}

const OTHER_TENANT = `
apiVersion: tollgate.dev/v1alpha1
kind: Plan
metadata: { name: coder, namespace: research }
spec:
  product: Coding
  displayName: "Research <script>alert('plan')</script>"
  coding: { sessionWindow: { tokens: 1000, durationSeconds: 3600 }, weeklyWindow: { tokens: 5000 } }
---
apiVersion: tollgate.dev/v1alpha1
kind: ApiKey
metadata: { name: secret-project, namespace: research }
spec: { planRef: { name: coder } }
`

/** Builds the page where it is missing, and starts the program. */
export async function openProgram(t: Test, env: Record<string, string> = {}): Promise<Program> {
  buildPage()
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-dashboard-'))
  const plans = join(folder, 'plans')
  await cp(join(REPOSITORY, 'plans'), plans, { recursive: true })
  await writeFile(join(plans, 'research.yaml'), OTHER_TENANT)
  // Previews are free where nobody names a price: what the pages show of money needs one.
  const demo = await readFile(join(plans, 'demo.yaml'), 'utf8')
  await writeFile(join(plans, 'demo.yaml'), demo.replace(/^    prices:.*\n/m, (line) => `${line}      - { kind: image, amount: "0.04" }\n      - { kind: video, amount: "0.10", per: Second }\n      - { kind: music, amount: "0.01", per: Second }\n`))
  const settings = { EGRESS_ALLOW: '127.0.0.1/32', WEBHOOK_DELAYS_SECONDS: '0,3600', ...env }
  const program: Program = {
    process: await startProcess({ folder, env: settings }),
    plans,
    async restart() {
      await program.process.stop()
      program.process = await startProcess({ folder, env: { ...settings, PORT: new URL(program.process.url).port } })
    },
  }
  t.teardown(async () => {
    await program.process.stop()
    await rm(folder, { recursive: true, force: true })
  })
  return program
}

/** Starts the program and the browser, whose program is `executable`. */
export async function openDashboard(t: Test, executable: string, env: Record<string, string> = {}): Promise<Dashboard> {
  const program = await openProgram(t, env)
  const browser = await chromium.launch({ executablePath: executable, timeout: WAIT_MS, args: process.getuid?.() === 0 ? ['--no-sandbox'] : [] })
  t.teardown(() => browser.close())
  return Object.assign(program, { browser })
}

/** Resolves once `look` is true, which it must become by itself. */
export function until(what: string, look: () => Promise<boolean>): Promise<unknown> {
  return eventually(what, async () => ((await look()) ? true : null))
}
