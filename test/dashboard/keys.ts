import type { Test } from 'tap'
import type { Page } from 'playwright-core'
import { inPage, until, type Dashboard } from './dashboard.ts'

const card = (page: Page, name: string) => page.locator('li.key', { has: page.getByRole('heading', { name, exact: true }) })

async function issue(page: Page, name: string): Promise<void> {
  await page.getByRole('button', { name: 'Issue a key' }).click()
  const dialog = page.getByRole('dialog', { name: 'Issue a key' })
  await dialog.getByLabel('Name').fill(name)
  await dialog.getByLabel('Plan').selectOption('coder')
  await dialog.getByRole('button', { name: 'Issue' }).click()
  await card(page, name).getByText('Active', { exact: true }).waitFor()
}

async function reveal(page: Page, name: string): Promise<string> {
  await page.getByRole('button', { name: `Reveal ${name}` }).click()
  await card(page, name).getByRole('button', { name: 'Copy key' }).waitFor()
  return (await card(page, name).locator('.secret code').textContent()) ?? ''
}

export async function keyTests(t: Test, dashboard: Dashboard): Promise<void> {
  /** What the Coding Plan API answers to a key. */
  const statusOf = async (key: string) => (await fetch(`${dashboard.process.url}/v1/usage`, { headers: { authorization: `Bearer ${key}` } })).status

  await inPage(t, dashboard, 'a key is issued, revealed, used, rotated with an overlap, suspended, resumed, and revoked for good', { path: '/keys' }, async (page, t) => {
    t.notOk((await page.content()).match(/svc_live_\w{20}/), 'no secret is in the page before somebody reveals one')
    await issue(page, 'robot')
    await card(page, 'robot').getByRole('button', { name: 'Copy key' }).waitFor()
    t.equal(await page.getByLabel('Key', { exact: true }).inputValue(), 'robot', 'the new key is revealed, and the one to use')
    const first = (await card(page, 'robot').locator('.secret code').textContent()) ?? ''
    t.equal(await statusOf(first), 200)

    await card(page, 'robot').getByRole('button', { name: 'Rotate robot' }).click()
    await page.getByRole('dialog').getByText('The current key still works for 1 h').waitFor()
    await page.getByRole('dialog').getByRole('button', { name: 'Rotate', exact: true }).click()
    await card(page, 'robot').getByText('The key before the rotation still works').waitFor()
    const second = await reveal(page, 'robot')
    t.not(second, first)
    t.same([await statusOf(first), await statusOf(second)], [200, 200], 'both work during the overlap')

    await card(page, 'robot').getByRole('button', { name: 'Limit of robot' }).click()
    const limit = page.getByRole('dialog', { name: 'Limit of robot' })
    await limit.getByLabel('Limit (optional)').fill('20000')
    await limit.getByRole('button', { name: 'Save' }).click()
    await card(page, 'robot').getByText('20K tokens a week').waitFor()
    await card(page, 'robot').getByRole('button', { name: 'Limit of robot' }).click()
    await limit.getByLabel('Limit (optional)').fill('')
    await limit.getByRole('button', { name: 'Save' }).click()
    await card(page, 'robot').locator('.fact', { hasText: 'Limit' }).getByText('none').waitFor()

    await card(page, 'robot').getByRole('button', { name: 'Hide' }).press('Enter')
    await until('the focus', () => page.evaluate<boolean>('document.activeElement?.getAttribute("aria-label") === "Reveal robot"'))
    await page.getByRole('button', { name: 'Reveal robot' }).press('Enter')
    await until('the focus', () => page.evaluate<boolean>('document.activeElement?.textContent.includes("Copy key")'))
    await card(page, 'robot').getByRole('button', { name: 'Suspend robot' }).press('Enter')
    await page.getByRole('dialog').getByRole('button', { name: 'Suspend', exact: true }).click()
    await card(page, 'robot').getByText('Suspended', { exact: true }).waitFor()
    await until('the focus', () => page.evaluate<boolean>('document.activeElement?.closest("li.key") !== null'))
    t.notOk((await page.content()).includes(second), 'a suspended key is not shown')
    await until('the refusal of the suspended key', async () => (await statusOf(second)) !== 200)

    await card(page, 'robot').getByRole('button', { name: 'Resume robot' }).press('Enter')
    await card(page, 'robot').getByText('Active', { exact: true }).waitFor()
    await until('the focus', () => page.evaluate<boolean>('document.activeElement?.closest("li.key") !== null'))
    await until('the key to work again', async () => (await statusOf(second)) === 200)

    await card(page, 'robot').getByRole('button', { name: 'Revoke robot' }).click()
    const confirm = page.getByRole('dialog').getByRole('button', { name: 'Revoke for good' })
    t.ok(await confirm.isDisabled(), 'only a typed confirmation revokes')
    await page.getByRole('dialog').getByRole('textbox').fill('robo')
    t.ok(await confirm.isDisabled())
    await page.getByRole('dialog').getByRole('textbox').fill('robot')
    await confirm.click()
    await card(page, 'robot').waitFor({ state: 'detached' })
    await until('the refusal of the revoked key', async () => (await statusOf(second)) !== 200)
  })

  await inPage(t, dashboard, 'the form names what is wrong beside the field, and the server what only it knows', { path: '/keys' }, async (page, t) => {
    await page.getByRole('button', { name: 'Issue a key' }).click()
    const dialog = page.getByRole('dialog', { name: 'Issue a key' })
    await dialog.getByLabel('Name').fill('Not a name')
    await dialog.getByLabel('Limit').fill('ten')
    await dialog.getByRole('button', { name: 'Issue' }).click()
    await dialog.getByRole('alert').nth(1).waitFor()
    t.match(await dialog.getByRole('alert').allTextContents(), [/lower-case letters/, /whole number of tokens|an amount such as/])
    t.equal(await dialog.getByLabel('Name').getAttribute('aria-invalid'), 'true')
    await dialog.getByLabel('Name').fill('coding')
    await dialog.getByLabel('Limit').fill('')
    await dialog.getByRole('button', { name: 'Issue' }).click()
    await dialog.getByText('A key of that name exists already.').waitFor()
    await page.keyboard.press('Escape')
    await dialog.waitFor({ state: 'detached' })
  })

  await inPage(t, dashboard, 'the configuration of each client has the address, and the key once it is revealed', { path: '/keys' }, async (page, t) => {
    const clients = page.locator('.clients')
    await page.getByLabel('Client', { exact: true }).selectOption('codex')
    t.match(await clients.textContent(), `base_url = "${dashboard.process.url}/v1"`)
    t.match(await clients.textContent(), 'export SVC_CODING_API_KEY=svc_live_…')
    const key = await reveal(page, 'coding')
    await page.getByLabel('Key', { exact: true }).selectOption('coding')
    for (const label of await page.getByLabel('Client', { exact: true }).locator('option').allTextContents()) {
      await page.getByLabel('Client', { exact: true }).selectOption({ label })
      const text = (await clients.textContent()) ?? ''
      t.ok(text.includes(key) && text.includes(dashboard.process.url), label)
      t.notOk(/127\.0\.0\.1:8080|svc_live_…/.test(text), `${label}: nothing of the example is left`)
    }
    await reveal(page, 'media')
    await until('the key that was revealed to be the one to use', async () => (await page.getByLabel('Key', { exact: true }).inputValue()) === 'media')
    await page.goto(`${dashboard.process.url}/dashboard/keys`)
    await card(page, 'coding').waitFor()
    t.notOk((await page.content()).includes(key), 'it is gone after a reload')
    t.same(await page.evaluate('[JSON.stringify(localStorage), JSON.stringify(sessionStorage)]'), ['{"tenant":"demo"}', '{}'])
    t.notOk(dashboard.process.log.some((line) => line.includes(key)), 'and in no log')
  })

  await inPage(t, dashboard, 'a key that its plan holds back cannot be resumed, and one whose rotation waits says so', { path: '/keys' }, async (page, t) => {
    await page.route('**/dashboard/api/keys', async (route) => {
      const list = await (await route.fetch()).json()
      const [coding, media] = list.data
      const held = { ...coding, state: 'Suspended', reason: 'PlanKeyLimitReached', message: 'The plan allows no more keys.' }
      await route.fulfill({ json: { ...list, data: [held, { ...media, message: 'The new key is not made yet.' }] } })
    })
    await page.reload()
    await card(page, 'coding').getByText('The plan allows no more keys.').waitFor()
    t.equal(await card(page, 'coding').getByRole('button', { name: 'Resume coding' }).count(), 0)
    t.equal(await card(page, 'coding').getByRole('button', { name: 'Revoke coding' }).count(), 1)
    await card(page, 'media').getByText('The new key is not made yet.').waitFor()
  })

  await inPage(t, dashboard, 'an edit of a key that somebody else has changed meanwhile is refused, and the page shows the present state', { path: '/keys' }, async (page) => {
    await page.route('**/api/keys/coding/suspend', async (route) => {
      await route.continue({ postData: JSON.stringify({ revision: `${(JSON.parse(route.request().postData() ?? '{}') as { revision: string }).revision.split('.')[0]}.999` }) })
    })
    await card(page, 'coding').getByRole('button', { name: 'Suspend coding' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Suspend', exact: true }).click()
    await page.getByText('has been changed elsewhere').waitFor()
    await card(page, 'coding').getByText('Active', { exact: true }).waitFor()
  })
}
