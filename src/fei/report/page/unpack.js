// The data of a page: numbers as they are, arrays inflated from base64.

const SCHEMA = 1;

/** Bytes of a base64 text. */
function bytesOf(text) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

/** An array that Python packed: deflated, all first bytes before all second bytes. */
async function unpack(text, Type) {
  const stream = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const size = Type.BYTES_PER_ELEMENT;
  if (size === 1) return planes;
  const count = planes.length / size;
  const bytes = new Uint8Array(planes.length);
  for (let plane = 0; plane < size; plane++) {
    for (let i = 0; i < count; i++) bytes[i * size + plane] = planes[plane * count + i];
  }
  return new Type(bytes.buffer);
}

/** What Python wrote into the page. */
function readPayload(text = document.getElementById("data").textContent) {
  const data = JSON.parse(text);
  if (data.schema !== SCHEMA) throw new Error(`The data has schema ${data.schema}; this page reads ${SCHEMA}.`);
  if (typeof DecompressionStream === "undefined") {
    throw new Error("This browser is too old to unpack the data; use one from 2023 or later.");
  }
  return data;
}
