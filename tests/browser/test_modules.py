"""The exported ES modules in a real browser, imported from an address, against PyTorch and `predict`."""

import numpy as np
import pytest
import torch

import kru
from kru.export import javascript

RUN = """async ([address, cases]) => {
  const { run } = await import(address);
  return cases.map((x) => {
    const results = [run(x)].flat();
    return results.map(({ outputs, label }) => ({ outputs: Array.from(outputs), label }));
  });
}"""


@pytest.fixture
def page(browser, served):
    folder, address = served
    (folder / "index.html").write_text("<!doctype html><title>modules</title><link rel=icon href='data:,'>")
    context = browser.new_context()
    page = context.new_page()
    page.goto(address)
    yield page
    context.close()


LAYERS = {
    "KRU": lambda: kru.KRU(3, 24),
    "KRU-LSTM": lambda: kru.KRULSTM(3, 24, 2),
    "KRU-GRU": lambda: kru.KRUGRU(3, 24),
}


@pytest.mark.parametrize("name", list(LAYERS))
def test_layers_agree_with_pytorch(name: str, page, served) -> None:
    folder, address = served
    torch.manual_seed(0)
    layer = LAYERS[name]().eval()
    [file] = javascript(layer, folder / "js", name="layer").files
    x = torch.randn(4, 50, 3)
    found = page.evaluate(RUN, [f"{address}/js/{file.name}", x.tolist()])
    with torch.no_grad():
        expected = layer(x.transpose(0, 1))[0].transpose(0, 1).numpy()
    actual = np.array([[step["outputs"] for step in case] for case in found])
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 * max(1.0, float(np.abs(expected).max())))


@pytest.mark.parametrize("kind", ["kru", "kru-lstm", "kru-gru"])
def test_raw_values_go_in_and_the_labels_of_predict_come_out(kind: str, page, served) -> None:
    estimators = pytest.importorskip("kru.estimators")
    folder, address = served
    rng = np.random.default_rng(0)
    y = np.repeat(["rest", "walk", "run"], 8)
    speed = np.repeat([0.0, 0.4, 1.1], 8)[:, None]
    time = np.arange(40)
    # Two sensors of very different ranges, so that the scaling inside the module is needed.
    waves = np.sin(speed * time + rng.uniform(0, 6, (24, 1)))
    X = np.stack([1000 + 200 * waves, 1e-3 * waves], axis=1) + rng.normal(0, 1e-5, (24, 2, 40))
    model = estimators.KRUClassifier(kind=kind, units=12, epochs=30, random_state=0).fit(X, y)
    [file] = javascript(model, folder / "js").files
    found = page.evaluate(RUN, [f"{address}/js/{file.name}", X.transpose(0, 2, 1).tolist()])
    last = [case[-1] for case in found]
    assert [result["label"] for result in last] == model.predict(X).tolist()
    np.testing.assert_allclose(
        [result["outputs"] for result in last], model.predict_proba(X), rtol=0, atol=2e-5
    )
    assert len({result["label"] for result in last}) > 1, "a model with one answer shows nothing"
