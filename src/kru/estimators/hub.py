"""Estimators in folders and on the Hugging Face Hub: a safetensors file and a card. Loading runs no code."""

from functools import cache
from pathlib import Path
from typing import Any, Self

from kru.estimators.saving import load

WEIGHTS = "model.safetensors"


class HubMethods:
    """`save_pretrained`, `push_to_hub` and `from_pretrained`, as the mixin of huggingface_hub has them."""

    def save_pretrained(self, folder: str | Path, **options: Any) -> Any:
        """Write the fitted estimator and a card into a folder.

        Args:
            folder: made if there is none.
            options: those of huggingface_hub's `ModelHubMixin.save_pretrained`, such as ``push_to_hub=True``.
        """
        return _shared()(self).save_pretrained(folder, **options)

    def push_to_hub(self, repo_id: str, **options: Any) -> Any:
        """Upload the fitted estimator and a card to a repository of the hub, which is made if there is none.

        Args:
            repo_id: such as "you/motions".
            options: those of huggingface_hub's `ModelHubMixin.push_to_hub`: ``private``, ``token``, ``branch``,
                ``commit_message`` and others.
        """
        return _shared()(self).push_to_hub(repo_id, **options)

    @classmethod
    def from_pretrained(cls, name: str | Path, *, device: str = "cpu", **options: Any) -> Self:
        """The estimator of a repository of the hub, or of a folder that `save_pretrained` wrote.

        Args:
            name: such as "you/motions", or a folder.
            device: where it shall compute.
            options: those of huggingface_hub's `ModelHubMixin.from_pretrained`: ``revision``, ``token``, ``cache_dir``,
                ``local_files_only`` and others.
        """
        estimator = _shared().from_pretrained(name, device=device, **options)
        if not isinstance(estimator, cls):
            raise ValueError(f"{name}: expected a {cls.__name__}, got a {type(estimator).__name__}")
        return estimator


@cache
def _shared() -> Any:
    """The mixin of huggingface_hub around an estimator.

    Not a base class of the estimators themselves: it would be imported with them, and it gives its objects attributes
    that scikit-learn's `clone` and checks do not expect.
    """
    try:
        from huggingface_hub import ModelCard, ModelHubMixin, hf_hub_download
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("huggingface_hub: not installed; run pip install 'kru[hub]'") from error

    class Shared(ModelHubMixin):
        def __init__(self, estimator: Any) -> None:
            self._estimator = estimator

        def _save_pretrained(self, save_directory: Path) -> None:
            self._estimator.save(save_directory / WEIGHTS)

        @classmethod
        def _from_pretrained(cls, *, model_id: str, device: str, **options: Any) -> Any:
            folder = Path(model_id)
            if folder.is_dir():
                return load(folder / WEIGHTS, device)
            for ignored in ("proxies", "resume_download"):
                options.pop(ignored, None)
            return load(hf_hub_download(model_id, WEIGHTS, **options), device)

        def generate_model_card(self, *arguments: Any, **settings: Any) -> Any:
            return ModelCard(card(self._estimator))

    return Shared


def card(estimator: Any) -> str:
    """A model card in Markdown: what the estimator is, its size, its settings, how to load it."""
    name = type(estimator).__name__
    changed = {
        key: value
        for key, value in estimator.get_params(deep=False).items()
        if value != type(estimator)().get_params(deep=False)[key]
    }
    settings = ", ".join(f"{key}={value!r}" for key, value in sorted(changed.items())) or "the defaults"
    classes = getattr(estimator, "classes_", None)
    lines = ["---", "library_name: kru", "tags:", "- kru", "- recurrent", "---", "", f"# {name}", ""]
    lines += [f"A `{name}` of kru with {estimator.n_parameters_:,} parameters. Settings: `{settings}`.", ""]
    if classes is not None:
        lines += [f"Classes: {', '.join(f'`{label}`' for label in classes[:50])}.", ""]
    lines += ["```python", f"from kru.estimators import {name}", ""]
    lines += [f'model = {name}.from_pretrained("...")  # the name of this repository, or a folder', "```", ""]
    lines += [
        "The file is safetensors; loading it runs no code. Please add what the model was trained on, the terms of"
    ]
    lines += ["that data, and how well it does on data that it has not seen.", ""]
    return "\n".join(lines)
