import type { Page } from 'playwright-core'
import type { Test } from 'tap'
import { openReceiver, type Receiver } from '../fakes/receiver.ts'
import { at } from '../flows/calls.ts'
import { inPage, until, violations, type Dashboard } from './dashboard.ts'
import { demoKey } from './usage.ts'

/** A finished image whose webhook the receiver got. Returns the task's id. */
async function delivered(dashboard: Dashboard, receiver: Receiver): Promise<string> {
  const response = await fetch(`${dashboard.process.url}/api/v1/generations`, {
    method: 'POST',
    headers: { authorization: `Bearer ${await demoKey(dashboard, 'media')}`, 'content-type': 'application/json', prefer: 'wait=60' },
    body: JSON.stringify({ kind: 'image', prompt: "Harbour <script>alert('task')</script>", size: '256x256', webhook_url: `${receiver.url}/hook`, metadata: { '<b>order</b>': '<i>42</i>' } }),
  })
  await receiver.arrived(1)
  return String(at(await response.json(), 'id'))
}

const historyOf = (page: Page) => page.locator('.card', { has: page.getByRole('heading', { name: 'History' }) }).getByRole('listitem')

export async function taskTests(t: Test, dashboard: Dashboard): Promise<void> {
  const receiver = await openReceiver(t)
  receiver.next({ status: 500, body: "<h1 onclick=alert('answer')>Broken</h1>" })
  const id = await delivered(dashboard, receiver)

  await inPage(t, dashboard, 'a task is found by filters that stay in the address, and shows its result, history, costs and request', { path: '/tasks' }, async (page, t) => {
    await page.getByLabel('Kind').selectOption('video')
    await page.getByText('No task matches the filters').waitFor()
    await page.getByLabel('Kind').selectOption('background_remove')
    await page.getByText('No task matches the filters').waitFor()
    await page.getByLabel('Kind').selectOption('image')
    await page.getByLabel('Status').selectOption('completed')
    await page.getByLabel('Webhook').selectOption('delivered')
    await page.getByText('No task matches the filters').waitFor()
    await page.getByLabel('Webhook').selectOption('pending')
    await page.reload()
    t.equal(await page.getByLabel('Webhook').inputValue(), 'pending')
    t.equal(await page.getByLabel('Status').inputValue(), 'completed')
    const found = page.getByRole('table', { name: 'Tasks, newest first' }).locator('tr', { hasText: 'Harbour' })
    await found.waitFor()
    t.match(await found.locator('td').allTextContents(), [/Harbour/, 'Completed', 'Pending', '0.04 credits', /ago|now/])
    await page.getByRole('link', { name: /Harbour/ }).click()
    await page.getByRole('heading', { level: 1, name: 'Image' }).waitFor()
    t.ok(page.url().includes(id))
    await page.getByText("Harbour <script>alert('task')</script>").waitFor()
    await page.getByText('<i>42</i>').waitFor()
    await historyOf(page).nth(6).waitFor()
    t.same(await historyOf(page).locator('strong').allTextContents(), ['Created', 'Held', 'Queued', 'First run began', 'Charged', 'Completed', 'Webhook sent'])
    t.same(await historyOf(page).locator('span').allTextContents(), ['0.04 credits of the allowance', '0.04 credits', 'task.completed, attempt 1: 500'])
    await page.locator('.fact', { hasText: 'Charged' }).getByText('0.04 credits').waitFor()
    const image = page.getByRole('img', { name: 'The image that the task made' })
    await image.waitFor()
    t.equal(await page.evaluate('(async (image) => (await image.decode(), image.naturalWidth))(document.querySelector(".media img"))'), 256, 'the result is shown')
    const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('link', { name: 'Download', exact: true }).click()])
    t.equal(download.suggestedFilename(), `image-${id.slice(-8)}.png`)
  })

  await inPage(t, dashboard, 'a search for a state of webhooks is not repeated by itself, and goes on among older tasks', {}, async (page, t) => {
    await page.clock.install()
    const asked: string[] = []
    page.on('request', (request) => void (request.url().includes('/media/tasks?') && asked.push(request.url())))
    await page.goto(`${dashboard.process.url}/dashboard/tasks`)
    await page.getByRole('link', { name: /Harbour/ }).waitFor()
    const before = asked.length
    await page.clock.runFor(4000)
    await until('another read', async () => asked.length > before)

    await page.route('**/media/tasks?*', (route) => route.fulfill({ json: { object: 'list', data: [], has_more: !route.request().url().includes('cursor'), next_cursor: 'older', examined: 200 } }))
    await page.getByLabel('Webhook').selectOption('failed')
    await page.getByText('None among the newest 200 tasks').waitFor()
    const searched = asked.length
    await page.clock.runFor(10_000)
    t.equal(asked.length, searched)
    await page.getByRole('button', { name: 'Older' }).click()
    await page.getByText('None among the next 200 tasks').waitFor()
    t.match(asked.at(-1), /cursor=older/)
  })

  await inPage(t, dashboard, 'every delivery attempt is shown with its answer; redeliver sends it again, and so does a replay of a time range', { path: `/tasks/${id}` }, async (page, t) => {
    const attempts = page.getByRole('table', { name: /Attempts to deliver/ })
    const row = (number: number) => attempts.locator('tbody tr').nth(number - 1)
    await row(1).waitFor()
    t.match(await row(1).locator('td').allTextContents(), ['1', /20\d\d/, '500', /^\d+ ms$/, "<h1 onclick=alert('answer')>Broken</h1>"])
    await page.getByText(/Next attempt in/).waitFor()
    await page.getByText('Payload', { exact: true }).click()
    const payload = page.getByLabel('Payload')
    await payload.waitFor()
    t.match(JSON.parse((await payload.textContent()) ?? ''), { event: 'task.completed', data: { task_id: id, result: { image_url: /sig=…$/ } } })
    t.same(await violations(page), [], 'the payload')
    receiver.next({ status: 200, body: 'thank you' })
    await page.getByRole('button', { name: 'Redeliver' }).click()
    await row(2).waitFor()
    t.match(await row(2).locator('td').allTextContents(), ['2 (redelivery)', /20\d\d/, '200', /ms$/, 'thank you'])
    await page.getByText('Delivered', { exact: true }).waitFor()
    t.match(await historyOf(page).last().textContent(), /^Webhook redeliveredtask.completed, attempt 2: 200/)

    await page.getByRole('link', { name: 'All tasks' }).click()
    await page.getByRole('button', { name: 'Replay webhooks' }).click()
    const dialog = page.getByRole('dialog', { name: 'Replay webhooks' })
    await dialog.getByRole('button', { name: 'Replay', exact: true }).click()
    await page.getByText('No delivery fits, so none is sent again.').waitFor()
    await page.getByRole('button', { name: 'Replay webhooks' }).click()
    await dialog.getByLabel('Status').selectOption('delivered')
    await dialog.getByRole('button', { name: 'Replay', exact: true }).click()
    await page.getByText('1 delivery is being sent again.').waitFor()
    await receiver.arrived(3)
  })

  await inPage(t, dashboard, 'the history of a task that failed has the reason and the refund', {}, async (page) => {
    const failed = await page.request.post(`${dashboard.process.url}/dashboard/api/media/operations`, {
      headers: { 'x-tollgate-csrf': '1', prefer: 'wait=60' },
      data: { operation: 'background_remove', media_url: `${receiver.url}/none` },
    })
    const { id: other, error } = await failed.json()
    await page.goto(`${dashboard.process.url}/dashboard/tasks`)
    await page.getByRole('table', { name: 'Tasks, newest first' }).locator('tr', { hasText: 'Remove background' }).getByText('none').waitFor()
    await page.goto(`${dashboard.process.url}/dashboard/tasks/${other}?object=operation`)
    await historyOf(page).filter({ hasText: 'Failed' }).getByText(error.message).waitFor()
    await historyOf(page).filter({ hasText: 'Refunded' }).getByText('went back to the allowance').waitFor()
  })

  await inPage(t, dashboard, 'a task of another tenant is not there, and a tenant without a plan for media reads why there are none', {}, async (page) => {
    await page.getByLabel('Tenant').selectOption('research')
    await page.getByRole('heading', { name: /^Research/ }).waitFor()
    await page.goto(`${dashboard.process.url}/dashboard/tasks/${id}`)
    await page.getByText('There is no such task').waitFor()
    await page.getByRole('link', { name: 'All tasks' }).click()
    await page.getByText('No plan for media').waitFor()
  })
}
