# How llama.cpp is compiled for this project. CMake reads it at the start of llama.cpp's own project:
#   CMAKE_ARGS="-DLLAVA_BUILD=OFF -DCMAKE_PROJECT_llama.cpp_INCLUDE=/path/to/this/file" pip install llama-cpp-python

# The libraries for chat templates, downloads and servers are not used here; they take as long to compile as llama.cpp.
set(LLAMA_BUILD_COMMON OFF)

# Some versions of GCC lose most of the AMX tile configuration; the header says more.
add_compile_options("SHELL:-include \"${CMAKE_CURRENT_LIST_DIR}/amx_tile_config.h\"")

# The graphs of some 150 architectures are built once for each batch, and need no optimiser. What computes keeps its flags.
function(compile_graph_builders_faster)
    target_compile_options(llama PRIVATE $<$<CXX_COMPILER_ID:GNU,Clang,AppleClang>:-O1>)
    get_target_property(sources llama SOURCES)
    list(FILTER sources EXCLUDE REGEX "models/")
    get_target_property(folder llama SOURCE_DIR)
    list(TRANSFORM sources PREPEND "${folder}/")
    set_source_files_properties(${sources} TARGET_DIRECTORY llama
        PROPERTIES COMPILE_OPTIONS "$<$<CXX_COMPILER_ID:GNU,Clang,AppleClang>:-O2>")
endfunction()
cmake_language(DEFER CALL compile_graph_builders_faster)
