import type { ComponentChildren } from 'preact'

export type Column<Row> = { name: string; cell: (row: Row) => ComponentChildren; number?: boolean }

type Props<Row> = { caption: string; columns: Column<Row>[]; rows: Row[]; keyOf: (row: Row) => string }

/** A table with a caption for screen readers. On a phone each row becomes a block whose cells carry the name of their column. */
export function DataTable<Row>({ caption, columns, rows, keyOf }: Props<Row>) {
  return (
    <div class="table-frame">
      <table class="table">
        <caption class="visually-hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map(({ name, number }) => (
              <th key={name} scope="col" class={number ? 'number' : ''}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={keyOf(row)}>
              {columns.map(({ name, cell, number }) => (
                <td key={name} data-name={name} class={number ? 'number' : ''}>
                  {cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}
