import t from 'tap'
import { formatMoney, LARGEST_AMOUNT, multiply, parseMoney } from '../../src/domain/money.ts'

t.test('a decimal string with at most six decimals is read exactly', async (t) => {
  const rows: [string, number][] = [
    ['0', 0],
    ['0.04', 40_000],
    ['1', 1_000_000],
    ['100.00', 100_000_000],
    ['0.000033', 33],
    ['1000000000', LARGEST_AMOUNT],
    ['999999999.999999', 999_999_999_999_999],
  ]
  for (const [text, micro] of rows) t.equal(parseMoney(text), micro, text)
})

t.test('a sign, an exponent, too many decimals, or anything that is no amount is refused', async (t) => {
  for (const text of ['', '-1', '+1', '1e3', '0.0000001', '1.', '.5', '01', '1,5', ' 1', '1 ', '1000000000.000001', '1000000001', '0x10', 'NaN', 'Infinity', '١']) {
    t.equal(parseMoney(text), null, JSON.stringify(text))
  }
})

t.test('an amount is written with four to six decimals', async (t) => {
  const rows: [number, string][] = [
    [0, '0.0000'],
    [40_000, '0.0400'],
    [33, '0.000033'],
    [123_450, '0.12345'],
    [1_000_000, '1.0000'],
    [LARGEST_AMOUNT, '1000000000.0000'],
  ]
  for (const [micro, text] of rows) t.equal(formatMoney(micro), text)
})

t.test('every amount survives being written and read', async (t) => {
  const lost = []
  for (let micro = 0; micro < 3_000_000; micro += 97) if (parseMoney(formatMoney(micro)) !== micro) lost.push(micro)
  t.same(lost, [])
})

t.test('price times amount is rounded up once, to a whole micro-unit', async (t) => {
  t.equal(multiply(40_000, 1000), 40_000)
  t.equal(multiply(33, 1), 1)
  t.equal(multiply(1, 999), 1)
  t.equal(multiply(50_000, 4_200), 210_000)
  t.equal(multiply(LARGEST_AMOUNT, 1000), LARGEST_AMOUNT, 'the largest price does not lose a micro-unit')
  t.equal(multiply(0, 5_000), 0)
})
