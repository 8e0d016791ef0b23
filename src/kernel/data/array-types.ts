// The array types of PostgreSQL for postgres.js: their OIDs, and how values are read and written.
import { formatArray, parseArray } from './arrays.ts';

// The built-in array types, whose OIDs never change: [element type, array type, parser of an element].
const text = (element: string): string => element;
const json = (element: string): unknown => JSON.parse(element);
const arrays: [element: number, array: number, parse: (element: string) => unknown][] = [
  [16, 1000, (element) => element === 't'],
  [17, 1001, (element) => Buffer.from(element.slice(2), 'hex')],
  [20, 1016, BigInt],
  [21, 1005, Number],
  [23, 1007, Number],
  [25, 1009, text],
  [114, 199, json],
  [700, 1021, Number],
  [701, 1022, Number],
  [1043, 1015, text],
  [1082, 1182, (element) => new Date(element)],
  [1114, 1115, (element) => new Date(element)],
  [1184, 1185, (element) => new Date(element)],
  [1700, 1231, text],
  [2950, 2951, text],
  [3802, 3807, json],
];
/** The OID of the array type, by the OID of its element type. */
export const arrayOf = new Map(arrays.map(([element, array]) => [element, array]));
/** The array types in the form of postgres.js's option `types`. */
export const arrayTypes = Object.fromEntries(
  arrays.map(([, array, parse]) => [
    `array${array}`,
    {
      to: array,
      from: [array],
      parse: (value: string) => parseArray(value, parse),
      serialize: (value: unknown) =>
        Array.isArray(value) ? formatArray(value, parse === json) : String(value),
    },
  ]),
);
