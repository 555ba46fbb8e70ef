import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import { inPage, openContext, signIn, signInLink, until, violations, type Dashboard } from './dashboard.ts'

export async function lifeTests(t: Test, dashboard: Dashboard): Promise<void> {
  const manifest = join(dashboard.plans, 'demo.yaml')
  /** Changes the manifest of the demo tenant, as an operator does. */
  async function edit(change: (text: string) => string): Promise<void> {
    await writeFile(manifest, change(await readFile(manifest, 'utf8')))
  }

  await inPage(t, dashboard, 'two tenants in two browsers: each sees its own plans and keys, and a plan whose name is script is text', {}, async (other, t) => {
    const one = await (await openContext(dashboard)).newPage()
    await signIn(one, dashboard)
    await one.goto(`${dashboard.process.url}/dashboard/keys`)
    await other.getByLabel('Tenant').selectOption('research')
    await other.getByRole('heading', { name: "Research <script>alert('plan')</script>" }).waitFor()
    await other.getByRole('link', { name: 'API Keys' }).first().click()
    await other.getByRole('heading', { name: 'secret-project' }).waitFor()
    t.equal(await other.getByRole('heading', { name: 'media', exact: true }).count(), 0)
    await one.reload()
    await one.getByRole('heading', { name: 'media', exact: true }).waitFor()
    t.notOk((await one.locator('main').innerHTML()).includes('secret-project'))
    t.equal(await one.getByLabel('Tenant').inputValue(), 'demo', 'a switch is of one session')
    await other.goto(`${dashboard.process.url}/dashboard/usage/media`)
    await other.getByText('No plan for media').waitFor()
    await one.context().close()
  })

  await inPage(t, dashboard, 'a switch to another tenant shows no plan of the one before, however late the plans come', {}, async (page) => {
    const studio = page.getByRole('heading', { name: 'Studio', exact: true })
    await studio.waitFor()
    const held = Promise.withResolvers<void>()
    await page.route('**/dashboard/api/plans', async (route) => {
      await held.promise
      await route.continue()
    })
    await page.getByLabel('Tenant').selectOption('research')
    await studio.waitFor({ state: 'detached' })
    held.resolve()
    await page.getByRole('heading', { name: /^Research/ }).waitFor()
    await page.unrouteAll({ behavior: 'wait' })
  })

  await inPage(t, dashboard, 'a switch in one tab is followed by every other, and what was pressed there before is not done for the new tenant', {}, async (page, t) => {
    await page.getByRole('heading', { name: 'Studio', exact: true }).waitFor()
    const other = await page.context().newPage()
    await other.goto(`${dashboard.process.url}/dashboard/keys`)
    await other.getByRole('heading', { name: 'media', exact: true }).waitFor()
    const sent = await other.waitForRequest((request) => request.url().endsWith('/api/keys'))
    t.equal(sent.headers()['x-tollgate-tenant'], 'demo', 'a request names the tenant of the page')
    await page.getByLabel('Tenant').selectOption('research')
    await page.getByRole('heading', { name: /^Research/ }).waitFor()
    await other.getByRole('heading', { name: 'secret-project' }).waitFor()
    t.equal(await other.getByLabel('Tenant').inputValue(), 'research')
    await other.getByText('Another tab has switched to research').waitFor()
    const issued = await page.request.post(`${dashboard.process.url}/dashboard/api/keys`, { headers: { 'x-tollgate-csrf': '1', 'x-tollgate-tenant': 'demo' }, data: { name: 'astray', plan: 'coder' } })
    t.match(await issued.json(), { status: 409, error: { code: 'tenant_changed' } })
  })

  await inPage(t, dashboard, 'a plan is suspended while its key is revealed: key and configuration leave the page, which says why, and they come back with the plan', { path: '/keys' }, async (page, t) => {
    await page.getByRole('button', { name: 'Reveal media' }).click()
    const secret = (await page.locator('.secret code', { hasText: /svc_live_\w{20}/ }).textContent()) ?? ''
    t.match(secret, /^svc_live_/)
    await edit((text) => text.replace('state: Active # Try Suspended', 'state: Suspended # Try Suspended'))
    await page.getByText('Studio is locked').waitFor()
    await page.getByRole('heading', { name: 'media', exact: true }).waitFor({ state: 'detached' })
    t.notOk((await page.content()).includes(secret))
    await page.goto(`${dashboard.process.url}/dashboard/usage/media`)
    await page.getByText('Studio is locked').waitFor()
    await page.getByText('What it made is still in Tasks.').waitFor()
    await page.goto(`${dashboard.process.url}/dashboard/`)
    await page.getByText('Its API keys do not work and are not shown.').waitFor()
    await edit((text) => text.replace('state: Suspended # Try Suspended', 'state: Active # Try Suspended'))
    await page.getByText('Its API keys do not work and are not shown.').waitFor({ state: 'detached' })
    await page.goto(`${dashboard.process.url}/dashboard/keys`)
    await page.getByRole('heading', { name: 'media', exact: true }).waitFor()
  })

  await inPage(t, dashboard, 'the gateway restarts under an open page: the session goes on, and the page finds it again by itself', { path: '/usage/coding' }, async (page) => {
    await page.getByRole('meter', { name: 'Week: tokens used' }).waitFor()
    await dashboard.restart()
    await Promise.all([page.waitForResponse((response) => response.url().includes('/api/usage/coding') && response.ok()), until('the plans', async () => page.getByRole('meter', { name: 'Week: tokens used' }).isVisible())])
    await page.getByRole('link', { name: 'API Keys' }).first().click()
    await page.getByRole('heading', { name: 'coding', exact: true }).waitFor()
  })

  await inPage(t, dashboard, 'a page that cannot reach the server keeps what it has read and says so, until the server answers again', { path: '/usage/coding' }, async (page, t) => {
    const lost = page.getByText('Connection lost')
    await page.getByRole('meter', { name: 'Week: tokens used' }).waitFor()
    await page.route('**/dashboard/api/**', (route) => route.abort())
    await lost.waitFor()
    t.ok(await page.getByRole('meter', { name: 'Week: tokens used' }).isVisible())
    t.same(await violations(page), [])
    await page.unroute('**/dashboard/api/**')
    await lost.waitFor({ state: 'detached' })
    await page.route('**/dashboard/api/**', (route) => route.fulfill({ status: 503, contentType: 'application/problem+json', body: '{"status":503,"detail":"away"}' }))
    await page.getByText('The service is not available').waitFor()
    await page.unroute('**/dashboard/api/**')
    await page.getByText('The service is not available').waitFor({ state: 'detached' })
  })

  await inPage(t, dashboard, 'an answer that never comes and one that is wrong are states of the page with a way on, and the page reads again by itself once the server answers', {}, async (page) => {
    await page.route('**/api/media/tasks**', (route) => route.abort())
    await page.getByRole('link', { name: /^Tasks/ }).click()
    await page.getByText('No connection').waitFor()
    await page.getByRole('button', { name: 'Try again' }).waitFor()
    await page.unroute('**/api/media/tasks**')
    await page.getByRole('table', { name: 'Tasks, newest first' }).waitFor()
    await page.goto(`${dashboard.process.url}/dashboard/tasks/no-such-task`)
    await page.getByText('There is no such task').waitFor()
  })

  await inPage(t, dashboard, 'an unknown address says so and leads home; signed out it leads to sign-in, and the link then to where the person wanted to go, as the same tenant', { path: '/keys/none?from=mail' }, async (page, t) => {
    await page.getByRole('heading', { level: 1, name: 'Not found' }).waitFor()
    t.match(await page.title(), /^Not found/)
    await page.getByRole('main').getByRole('link', { name: 'Home' }).click()
    await page.getByRole('heading', { level: 1, name: 'Home' }).waitFor()
    await page.getByLabel('Tenant').selectOption('research')
    await page.getByRole('heading', { name: /^Research/ }).waitFor()
    await page.context().clearCookies()
    await page.goto(`${dashboard.process.url}/dashboard/usage/coding?plan=coder`)
    await page.getByRole('link', { name: 'Sign in' }).click()
    await page.getByText('Open the sign-in link that the program printed').waitFor()
    await page.goto(signInLink(dashboard.process))
    await page.getByRole('heading', { level: 1, name: 'Coding usage' }).waitFor()
    t.match(page.url(), /\/dashboard\/usage\/coding\?plan=coder$/)
    t.equal(await page.getByLabel('Tenant').inputValue(), 'research', 'and to the tenant they acted for')
    t.match((await page.request.get(`${dashboard.process.url}/favicon.ico`)).headers(), { 'content-type': 'image/svg+xml' })
  })

  await inPage(t, dashboard, 'sign-out ends the session: Back shows no page of it, and every browser tab that asks is signed out', { path: '/keys' }, async (page, t) => {
    await page.getByRole('heading', { name: 'coding', exact: true }).waitFor()
    const second = await page.context().newPage()
    await second.goto(`${dashboard.process.url}/dashboard/keys`)
    await second.getByRole('heading', { name: 'coding', exact: true }).waitFor()
    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.getByRole('heading', { name: 'You are signed out' }).waitFor()
    await second.getByRole('heading', { name: 'Sign in' }).waitFor()
    await page.goto(`${dashboard.process.url}/livez`)
    await page.goBack()
    await page.getByRole('link', { name: 'Sign in' }).waitFor()
    t.equal(await page.getByRole('heading', { name: 'coding', exact: true }).count(), 0)
    await page.getByRole('link', { name: 'Sign in' }).click()
    await page.getByText('Open the sign-in link that the program printed').waitFor()
  })
}
