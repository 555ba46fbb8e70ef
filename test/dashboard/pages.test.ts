/** The pages of the dashboard in a real browser, over a program that runs. One program and one browser; each test has a context of its own. */
import t from 'tap'
import { need } from '../servers/client.ts'
import { openDashboard } from './dashboard.ts'
import { accessibilityTests } from './accessibility.ts'
import { conditionTests } from './conditions.ts'
import { keyTests } from './keys.ts'
import { lifeTests } from './life.ts'
import { taskTests } from './tasks.ts'
import { usageTests } from './usage.ts'

t.test('the dashboard in a browser', async (t) => {
  const executable = need(t, 'chromium')
  if (executable === null) return
  const dashboard = await openDashboard(t, executable)
  await t.test('keys', (t) => keyTests(t, dashboard))
  await t.test('usage', (t) => usageTests(t, dashboard))
  await t.test('tasks and webhooks', (t) => taskTests(t, dashboard))
  await t.test('bad conditions', (t) => conditionTests(t, dashboard))
  await t.test('accessibility', (t) => accessibilityTests(t, dashboard))
  // Last: these stop the program and change plans.
  await t.test('over time', (t) => lifeTests(t, dashboard))
})
